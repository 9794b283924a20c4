const KEY = 'digest-gateway-theme';

/** Light, dark, or as the system has it; kept in this browser. `onChange`: when colours changed. */
export function followTheme(select: HTMLSelectElement, onChange: () => void): void {
  const apply = (): void => {
    if (select.value === 'auto') document.documentElement.removeAttribute('data-theme');
    else document.documentElement.setAttribute('data-theme', select.value);
    onChange();
  };
  const kept = localStorage.getItem(KEY);
  if (kept === 'light' || kept === 'dark') select.value = kept;
  select.addEventListener('change', () => {
    localStorage.setItem(KEY, select.value);
    apply();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', onChange);
  apply();
}

const KEY = 'digest-gateway-theme';

/**
 * Switches between light, dark and the setting of the system; the choice is stored in this browser. `onChange`
 * is called when the colours have changed.
 */
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

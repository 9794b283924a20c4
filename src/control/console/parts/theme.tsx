import { effect, signal } from '@preact/signals';

const KEY = 'digest-gateway-theme';
const THEMES = ['auto', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];

const theme = signal<Theme>(themeOf(localStorage.getItem(KEY)));

/** Counts changes of the colours. A canvas that reads it is drawn again. */
export const colours = signal(0);

effect(() => {
  if (theme.value === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', theme.value);
  colours.value = colours.peek() + 1;
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  colours.value += 1;
});

/** Chooses between light, dark and the setting of the system; the choice is stored in this browser. */
export function ThemeChoice() {
  return (
    <label class="theme">
      <span>Theme </span>
      <select
        aria-label="Theme"
        value={theme.value}
        onChange={({ currentTarget }) => {
          theme.value = themeOf(currentTarget.value);
          localStorage.setItem(KEY, theme.value);
        }}
      >
        {THEMES.map((each) => (
          <option key={each} value={each}>
            {each === 'auto' ? 'as the system' : each}
          </option>
        ))}
      </select>
    </label>
  );
}

function themeOf(text: string | null): Theme {
  return THEMES.find((each) => each === text) ?? 'auto';
}

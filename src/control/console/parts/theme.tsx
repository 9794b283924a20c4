import { effect, signal } from '@preact/signals';

const KEY = 'digest-gateway-theme';
const THEMES = ['auto', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];

const theme = signal<Theme>(THEMES.find((each) => each === localStorage.getItem(KEY)) ?? 'auto');

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

const MENU = 'theme';

/** A menu that chooses between light, dark and the setting of the system; the choice is stored in this browser. */
export function ThemeMenu() {
  return (
    <>
      <button type="button" class="quiet" popovertarget={MENU} aria-label="Theme">
        <span aria-hidden="true">◐</span>
      </button>
      <fieldset id={MENU} popover="auto" class="menu">
        <legend>Theme</legend>
        {THEMES.map((each) => (
          <label key={each}>
            <input
              type="radio"
              name="theme"
              checked={each === theme.value}
              onChange={() => {
                theme.value = each;
                localStorage.setItem(KEY, each);
              }}
            />
            {each === 'auto' ? 'as the system' : each}
          </label>
        ))}
      </fieldset>
    </>
  );
}

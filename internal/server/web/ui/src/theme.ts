// Dark or light, as the system has it until somebody chooses.
import { useEffect, useState } from 'preact/hooks';

const key = 'tutti-theme';
const system = matchMedia('(prefers-color-scheme: light)');
const changed = new EventTarget();

export const themeNow = (): string => localStorage.getItem(key) ?? (system.matches ? 'light' : 'dark');

export function applyTheme(): void {
  document.documentElement.dataset.theme = themeNow();
  changed.dispatchEvent(new Event('change'));
}

export function flipTheme(): void {
  localStorage.setItem(key, themeNow() === 'dark' ? 'light' : 'dark');
  applyTheme();
}

system.addEventListener('change', applyTheme);

export function useTheme(): string {
  const [t, set] = useState(themeNow());
  useEffect(() => {
    const f = () => set(themeNow());
    changed.addEventListener('change', f);
    return () => changed.removeEventListener('change', f);
  }, []);
  return t;
}

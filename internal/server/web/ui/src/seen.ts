// Which part of an element is in the window.
import { useEffect, useState } from 'preact/hooks';

/** useSeen follows how far the top of an element is above that of the window, and how high the window is. */
export function useSeen(box: { current: Element | null }): [number, number] {
  const [view, set] = useState<[number, number]>([0, 900]);
  useEffect(() => {
    let frame = 0;
    const see = () => {
      frame = 0;
      const top = -(box.current?.getBoundingClientRect().top ?? 0);
      set((old) => (old[0] === top && old[1] === innerHeight ? old : [top, innerHeight]));
    };
    const later = () => { frame ||= requestAnimationFrame(see); };
    see();
    addEventListener('scroll', later, { passive: true });
    addEventListener('resize', later);
    return () => { removeEventListener('scroll', later); removeEventListener('resize', later); cancelAnimationFrame(frame); };
  }, []);
  return view;
}

import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import './style.css';
import { live, useLive } from './live';
import { link, useRoute, type Route } from './route';
import { applyTheme, flipTheme, useTheme } from './theme';
import { Degraded } from './parts/degraded';
import { Lost } from './parts/lost';
import { Palette } from './parts/palette';
import { Page } from './parts/bits';
import { Batch } from './pages/batch';
import { Compare } from './pages/compare';
import { Job } from './pages/job';
import { Jobs } from './pages/jobs';
import { Model } from './pages/model';
import { Models } from './pages/models';
import { Overview } from './pages/overview';
import { Pipeline } from './pages/pipeline';
import { Pipelines } from './pages/pipelines';
import { Settings } from './pages/settings';
import { Timeline } from './pages/timeline';
import { Trace } from './pages/trace';
import { Traces } from './pages/traces';
import { Try } from './pages/try';

const titles: Record<string, string> = {
  '': 'Overview', pipelines: 'Pipelines', pipeline: 'Pipeline', models: 'Models', model: 'Model', traces: 'Traces', compare: 'Compare', batches: 'Batch', timeline: 'Timeline', jobs: 'Jobs', try: 'Try it', settings: 'Settings',
};

const show = (r: Route) => {
  switch (r.page) {
    case '': return <Overview query={r.query} />;
    case 'pipelines': return <Pipelines query={r.query} />;
    case 'pipeline': return <Pipeline model={r.arg} query={r.query} />;
    case 'models': return <Models query={r.query} />;
    case 'model': return <Model key={r.arg} model={r.arg} query={r.query} />;
    case 'traces': return r.arg ? <Trace key={r.arg} id={r.arg} /> : <Traces query={r.query} />;
    case 'timeline': return <Timeline query={r.query} />;
    case 'compare': return <Compare key={JSON.stringify(r.query)} query={r.query} />;
    case 'batches': return <Batch key={r.arg} id={r.arg} />;
    case 'jobs': return r.arg ? <Job key={r.arg} id={r.arg} query={r.query} /> : <Jobs query={r.query} />;
    case 'try': return <Try model={r.arg} query={r.query} />;
    case 'settings': return <Settings />;
    default: return <Page title="Nothing is here"><p><a href={link('')}>To the overview</a></p></Page>;
  }
};

const typing = (e: EventTarget | null): boolean =>
  e instanceof HTMLElement && (e.isContentEditable || /^(input|textarea|select)$/i.test(e.tagName));

const App = () => {
  const r = useRoute();
  const [searching, search] = useState(false);
  useEffect(() => {
    const f = (e: KeyboardEvent) => {
      if ((e.key === '/' && !typing(e.target)) || (e.key.toLowerCase() === 'k' && (e.ctrlKey || e.metaKey))) {
        e.preventDefault();
        search(true);
      }
    };
    addEventListener('keydown', f);
    return () => removeEventListener('keydown', f);
  }, []);
  useEffect(() => {
    document.title = `${[r.arg, titles[r.page]].filter(Boolean).join(' · ')} · tutti`;
    scrollTo(0, 0);
  }, [r.page, r.arg]);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to the page</a>
      <Bar page={r.page} search={() => search(true)} />
      <Lost />
      <Degraded />
      {show(r)}
      {searching && <Palette close={() => search(false)} />}
    </>
  );
};

const Bar = ({ page, search }: { page: string; search: () => void }) => {
  const l = useLive();
  const theme = useTheme();
  const nav: [string, string][] = [['', 'Overview'], ['pipelines', 'Pipelines'], ['models', 'Models'], ['traces', 'Traces'], ['timeline', 'Timeline'], ['jobs', 'Jobs'], ['try', 'Try it']];
  return (
    <header class="bar">
      <a class="brand" href={link('')} aria-label="tutti, overview"><Mark /><span>tutti</span></a>
      <nav aria-label="Pages">{nav.map(([p, title]) => <a key={p} href={link(p)} aria-current={p === page || p === `${page}s` ? 'page' : undefined}>{title}</a>)}</nav>
      <button type="button" class="find" onClick={search}><span>Search</span><kbd>/</kbd></button>
      <span class={`link ${l.state}`} role="status" title={l.state}><i /><span>{l.state}</span></span>
      <button type="button" class="icon" aria-label={`Use ${theme === 'dark' ? 'light' : 'dark'} colours`} onClick={flipTheme}>
        <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true"><circle cx="10" cy="10" r="7" fill="none" stroke="currentColor" stroke-width="1.6" /><path d="M10 3a7 7 0 0 1 0 14z" fill="currentColor" /></svg>
      </button>
      <a class="icon" href={link('settings')} aria-label="Settings" aria-current={page === 'settings' ? 'page' : undefined}>
        <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.6"><path d="M3 6h8M15 6h2M3 14h2M9 14h8" /><circle cx="13" cy="6" r="2" /><circle cx="7" cy="14" r="2" /></svg>
      </a>
    </header>
  );
};

const Mark = () => (
  <svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
    <path d="M8 16L23 8.5M8 16L23 23.5" stroke="currentColor" stroke-width="2.2" opacity="0.55" />
    <circle class="m1" cx="8" cy="16" r="4.4" /><circle class="m2" cx="23.5" cy="8.5" r="4.4" /><circle class="m3" cx="23.5" cy="23.5" r="4.4" />
  </svg>
);

applyTheme();
live.start();
render(<App />, document.getElementById('app')!);

// Loading, unloading and rolling back, for those who have the token.
import { useState } from 'preact/hooks';
import { api, token } from '../api';
import { link } from '../route';
import { Bad, useAsked } from './bits';

/** pinned is a configuration that serves one version only. */
export function pinned(config: Record<string, unknown>, version: number): string {
  return JSON.stringify({ ...config, version_policy: { specific: { versions: [version] } } });
}

export const Operate = ({ model, version, done }: { model: string; version: string; done?: () => void }) => {
  const session = useAsked(() => api.session(), [token.get()]);
  const [said, say] = useState<{ text?: string; error?: unknown }>({});
  const [busy, setBusy] = useState(false);
  const [sure, setSure] = useState('');
  const [wanted, want] = useState('');
  const may = session.value?.admitted ?? false;
  const run = async (what: string, f: () => Promise<unknown>) => {
    if (what === 'Unloaded' && sure !== what) { setSure(what); return; }
    setSure('');
    setBusy(true);
    say({});
    try { await f(); say({ text: `${what}.` }); } catch (error) { say({ error }); }
    setBusy(false);
    done?.();
  };
  return (
    <div class="operate">
      {!may && (
        <p class="note">{session.value && !session.value.token
          ? 'This server is read-only: it was started without a token for the dashboard.'
          : <>Changes need the dashboard's token: <a href={link('settings')}>enter it</a>.</>}</p>
      )}
      <p>{model} serves version {version || '–'}.</p>
      <div class="buttons">
        <button type="button" disabled={!may || busy} onClick={() => void run('Loaded', () => api.load(model))}>Load again</button>
        <button type="button" class="danger" disabled={!may || busy} onClick={() => void run('Unloaded', () => api.unload(model))}>
          {sure ? 'Press again to unload' : 'Unload'}
        </button>
      </div>
      <form onSubmit={(e) => {
        e.preventDefault();
        void run(`Serving version ${wanted}`, async () => api.load(model, pinned(await api.config(model), Number(wanted))));
      }}>
        <label>Roll back or forward to version
          <input type="number" min="1" step="1" required value={wanted} onInput={(e) => want(e.currentTarget.value)} />
        </label>
        <button type="submit" disabled={!may || busy || !wanted}>Serve it</button>
      </form>
      <div role="status">{busy ? 'Working…' : said.text}</div>
      {said.error !== undefined && <Bad error={said.error} />}
    </div>
  );
};

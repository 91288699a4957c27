import { useEffect, useState } from 'preact/hooks';
import { api, extra, token, type Sampling } from '../api';
import { ago, bytes } from '../format';
import { live, useLive } from '../live';
import { flipTheme, useTheme } from '../theme';
import { Bad, Card, Empty, Page, useAsked } from '../parts/bits';
import { Captures } from '../parts/captures';

export const Settings = () => {
  const [turn, next] = useState(0);
  const session = useAsked(() => api.session(), [turn]);
  const theme = useTheme();
  return (
    <Page title="Settings">
      <div class="columns even">
        <Card title="Access"><div class="stack">
          <form class="stack" onSubmit={(e) => {
            e.preventDefault();
            const d = new FormData(e.currentTarget);
            token.set(String(d.get('token') ?? '').trim());
            extra.set(String(d.get('header') ?? '').trim());
            live.restart();
            next((n) => n + 1);
          }}>
            <label>Token<input name="token" type="password" autocomplete="off" defaultValue={token.get()} /></label>
            <label>Header of restricted interfaces<input name="header" placeholder="name: value" autocomplete="off" defaultValue={extra.get()} /></label>
            <p class="note">Both stay in this tab and are forgotten with it.</p>
            <div class="buttons"><button type="submit" class="primary">Use</button></div>
          </form>
          {session.value?.token && !session.value.admitted && token.get() && <Bad error="The server refuses this token. Check it against its --dashboard-token." />}
          {session.value && <p role="status">{session.value.admitted ? 'You may change things.' : session.value.token ? 'You may look; changes need the token.' : 'This server is read-only: it was started without --dashboard-token.'}</p>}
        </div></Card>
        <SamplingForm may={session.value?.admitted ?? false} />
        <Captures may={session.value?.admitted ?? false} />
        <Store />
        <Card title="Appearance"><button type="button" onClick={flipTheme}>Use {theme === 'dark' ? 'light' : 'dark'} colours</button></Card>
      </div>
    </Page>
  );
};

const SamplingForm = ({ may }: { may: boolean }) => {
  const asked = useAsked(() => api.sampling(), []);
  const [s, set] = useState<Sampling | null>(null);
  const [said, say] = useState<{ text?: string; error?: unknown }>({});
  useEffect(() => { if (asked.value) set(asked.value); }, [asked.value]);
  return (
    <Card title="Which requests are stored">
      {asked.error !== null ? <Bad error={asked.error} /> : !s ? <Empty>Reading…</Empty> : (
        <form class="stack" onSubmit={(e) => {
          e.preventDefault();
          api.setSampling(s).then((v) => { set(v); say({ text: 'Changed.' }); }, (error: unknown) => say({ error }));
        }}>
          <fieldset disabled={!may}>
            <legend class="sr">Which requests are stored</legend>
            <label class="check"><input type="checkbox" checked={s.failed} onChange={(e) => set({ ...s, failed: e.currentTarget.checked })} />all that fail or are refused</label>
            <label class="check"><input type="checkbox" checked={s.slow} onChange={(e) => set({ ...s, slow: e.currentTarget.checked })} />the slowest of each model and minute</label>
            <label>One in so many of the others, 0 for none<input type="number" min="0" max="4294967295" value={s.every} onInput={(e) => set({ ...s, every: Number(e.currentTarget.value) })} /></label>
            <div class="buttons"><button type="submit">Change</button></div>
          </fieldset>
          <p role="status">{said.text}</p>{said.error !== undefined && <Bad error={said.error} />}
        </form>
      )}
    </Card>
  );
};

const Store = () => {
  const l = useLive(), s = l.server;
  return (
    <Card title="Trace store">
      {!s?.store ? <Empty>No traces are stored.</Empty> : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Trace store"><table>
          <thead><tr><th>Retained</th><th class="num">Traces</th><th class="num">Used</th><th class="num">Of</th><th class="num">Oldest</th></tr></thead>
          <tbody>{s.store.rings.map((r) => (
            <tr key={r.retained}><td>{r.retained}</td><td class="num">{r.traces}</td><td class="num">{bytes(r.used_bytes)}</td><td class="num">{bytes(r.bytes)}</td>
              <td class="num">{r.oldest_us ? `${ago(s.now_us - r.oldest_us)}` : '–'}</td></tr>
          ))}</tbody>
        </table></div>
      )}
    </Card>
  );
};

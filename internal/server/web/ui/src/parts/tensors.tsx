// The captured tensors of a request.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { api, ref, save, token, type PreviewView, type TensorView, type TraceView } from '../api';
import { bytes, plural, shape } from '../format';
import { link } from '../route';
import { Bad, Card, Empty, useAsked } from './bits';

export const Tensors = ({ t }: { t: TraceView }) => {
  const { value, error } = useAsked(() => api.tensors(ref(t)), [ref(t)]);
  const [failed, fail] = useState<unknown>(null);
  const get = (file: string, name: string) => save(`api/traces/${ref(t)}/${file}`, name).catch(fail);
  const may = token.get() !== '';
  return (
    <Card title="Tensors" actions={may
      ? <button type="button" onClick={() => void get('capture.npz', `${t.id}.npz`)}>Save all as npz</button>
      : <span class="dim">contents need the <a href={link('settings')}>token</a></span>}>
      {error !== null && <Bad error={error} />}{failed !== null && <Bad error={failed} />}
      {value?.list && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Tensors"><table class="tensors">
          <thead><tr><th>Tensor</th><th>Type</th><th class="num">Size</th><th>Place</th><th>Read by</th><th>Content</th></tr></thead>
          <tbody>{value.list.map((x) => (
            <tr key={x.n}><td><b>{x.tensor}</b><br /><small class="dim">{x.step}{x.wave > 0 && `, sub-run ${x.wave}`}</small></td>
              <td class="mono">{x.datatype}<br />{shape(x.shape)}</td><td class="num">{bytes(x.bytes)}</td><td>{x.place}</td>
              <td class="dim">{(x.readers ?? []).join(', ')}</td>
              <td><Content x={x} />{x.kept && may && <button type="button" class="quiet" onClick={() => void get(`tensors/${x.n}.npy`, `${x.name}.npy`)}>save as npy</button>}</td></tr>
          ))}</tbody>
        </table></div>
      )}
      {!value && error === null && <Empty>Reading the tensors…</Empty>}
      {!!value?.more && <p class="note">{plural(value.more, 'tensor')} more had no room.</p>}
    </Card>
  );
};

const Content = ({ x }: { x: TensorView }) => {
  if (!x.kept) return <span class="dim">{x.why ?? 'not captured'}</span>;
  return x.preview ? <Preview p={x.preview} name={x.name} /> : null;
};

const Preview = ({ p, name }: { p: PreviewView; name: string }) => (
  <div>
    {p.png && <Picture base64={p.png} alt={`Tensor ${name}`} />}
    {p.values && !p.png && <pre tabIndex={0} aria-label={`Content of ${name}`}>{p.values.join(p.kind === 'text' ? '\n' : '  ')}{p.more ? ` … ${p.more} more` : ''}</pre>}
    {p.min !== undefined && p.min !== '' && <small class="dim">{p.min} to {p.max}, mean {p.mean}{p.odd ? `, ${p.odd} not finite` : ''}</small>}
    {p.top && p.top.length > 0 && <div><small class="dim">largest: {p.top.map((v) => `#${v.index} ${v.value}`).join(', ')}</small></div>}
  </div>
);

/** Picture shows an image by an address of this page, as its policy lets no data in an address. */
const Picture = ({ base64, alt }: { base64: string; alt: string }) => {
  const url = useMemo(() => URL.createObjectURL(new Blob([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], { type: 'image/png' })), [base64]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  return <img src={url} alt={alt} />;
};

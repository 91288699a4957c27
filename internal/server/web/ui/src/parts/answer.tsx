// The outputs of an answer, as a person reads them.
import { useEffect, useMemo } from 'preact/hooks';
import { bytes, percent } from '../format';
import { picture, topK, written, type Output } from '../tensor';

const shown = 64;

export const Answer = ({ outputs }: { outputs: Output[] }) => {
  const ranked = topK(outputs);
  return (
    <div class="answer">
      {ranked.length > 0 && (
        <ol class="topk" aria-label="Best labels">
          {ranked.slice(0, 10).map((r, i) => (
            <li key={i}><span class="clip">{r.label}</span><span class="hbar"><i style={{ width: `${Math.max(0, Math.min(1, r.value)) * 100}%` }} /></span>
              <b class="mono">{r.value >= 0 && r.value <= 1 ? percent(r.value) : r.value.toPrecision(4)}</b></li>
          ))}
        </ol>
      )}
      {outputs.map((o) => (
        <div key={o.name} class="output">
          <h3>{o.name} <span class="dim">{o.datatype} [{o.shape.join(', ')}]</span></h3>
          {o.datatype !== 'BYTES' ? <Numbers o={o} /> : short(o.blobs)
            ? <pre class="blob" tabIndex={0} aria-label={`Output ${o.name}`}>{o.blobs.slice(0, shown).map(written).join('\n')}</pre>
            : o.blobs.slice(0, shown).map((b, i) => <Element key={i} b={b} name={o.name} />)}
        </div>
      ))}
    </div>
  );
};

/** short tells that elements are words, which need no frame each. */
const short = (list: Uint8Array[]): boolean => list.length > 1 && list.every((b) => b.length < 80 && !picture(b) && !b.includes(10));

const Element = ({ b, name }: { b: Uint8Array; name: string }) => {
  const kind = picture(b);
  const url = useMemo(() => (kind ? URL.createObjectURL(new Blob([b as BlobPart], { type: kind })) : ''), [b]);
  useEffect(() => () => { if (url) URL.revokeObjectURL(url); }, [url]);
  if (url) return <figure class="picture"><img src={url} alt={`Output ${name}`} /><figcaption class="dim">{kind}, {bytes(b.length)}</figcaption></figure>;
  return <pre class="blob" tabIndex={0} aria-label={`Output ${name}`}>{pretty(written(b))}</pre>;
};

const pretty = (s: string): string => {
  if (!/^\s*[[{]/.test(s)) return s;
  try { return JSON.stringify(JSON.parse(s), null, 2); } catch { return s; }
};

const Numbers = ({ o }: { o: Output }) => {
  const all = o.shape.reduce((a, b) => a * b, 1);
  const list = o.values.slice(0, shown).map((v) => (typeof v === 'number' && !Number.isInteger(v) ? v.toPrecision(5) : String(v)));
  return <pre class="blob" tabIndex={0} aria-label={`Output ${o.name}`}>{list.join('  ')}{all > list.length ? `  … ${all - list.length} more` : ''}</pre>;
};

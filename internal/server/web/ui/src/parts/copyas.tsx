// The request of the form as a command or program.
import { useEffect, useState } from 'preact/hooks';
import { extra, token, type ModelMeta } from '../api';
import type { Field } from '../field';
import { curl, infer, parts, python, type Request } from '../snippets';
import { Copy } from './bits';

const forms: Record<string, (q: Request) => string> = { curl, Python: python, 'tutti infer': infer };

const root = (): string => new URL('..', location.href.split('#')[0]).href.replace(/\/$/, '');

/** CopyAs shows what sends the request of the form from a terminal. */
export const CopyAs = ({ m, version, decoupled, fields }: { m: ModelMeta; version: string; decoupled: boolean; fields: Record<string, Field> }) => {
  const [open, show] = useState(false);
  const [form, choose] = useState('curl');
  const [made, set] = useState({ form: '', text: '', error: '' });
  useEffect(() => {
    if (!open) return;
    let over = false;
    const make = async () => forms[form]!({
      url: `${root()}/v2/models/${encodeURIComponent(m.name)}`, origin: root(), model: m.name, version, decoupled,
      token: token.get() !== '', header: extra.get().split(':')[0]!.trim(), parts: await parts(m, fields, decoupled),
    });
    make().then((text) => { if (!over) set({ form, text, error: '' }); }, (e: Error) => { if (!over) set({ form, text: '', error: e.message }); });
    return () => { over = true; };
  }, [open, form, m, version, decoupled, fields]);
  return (
    <details class="copyas" onToggle={(e) => show(e.currentTarget.open)}>
      <summary>Copy as curl, Python or tutti infer</summary>
      <div class="tabs" role="group" aria-label="Form of the request">
        {Object.keys(forms).map((k) => <button type="button" key={k} aria-pressed={k === form} onClick={() => choose(k)}>{k}</button>)}
      </div>
      {made.form !== form ? null : made.error ? <p class="note">{made.error}.</p> : made.text && <div class="command"><pre class="blob" tabIndex={0} aria-label={`The request as ${form}`}>{made.text}</pre><Copy text={made.text} label="the request" /></div>}
      {decoupled && form === 'tutti infer' && <p class="note">Decoupled models are called over gRPC: set TUTTI_GRPC, if that is not at port 8001.</p>}
      {made.text && (token.get() || extra.get()) && <p class="note">Secrets are not in it: set {[token.get() && 'TUTTI_TOKEN', extra.get() && 'TUTTI_HEADER'].filter(Boolean).join(' and ')} before.</p>}
    </details>
  );
};

// An input of a model in a form.
import { useEffect, useMemo } from 'preact/hooks';
import type { TensorMeta } from '../api';
import type { Field } from '../field';

export const InputField = ({ m, f, set }: { m: TensorMeta; f: Field; set: (f: Field) => void }) => {
  const url = useMemo(() => (f.files[0]?.type.startsWith('image/') ? URL.createObjectURL(f.files[0]) : ''), [f.files]);
  useEffect(() => () => { if (url) URL.revokeObjectURL(url); }, [url]);
  const bytes = m.datatype === 'BYTES';
  const many = m.shape.length > 0 && m.shape.some((d) => d !== 1);
  return (
    <fieldset class="input">
      <legend>{m.name} <span class="dim">{m.datatype} [{m.shape.join(', ')}]</span></legend>
      {bytes && (
        <div class="tabs" role="group" aria-label={`How ${m.name} is given`}>
          {(['text', ...(many ? ['lines'] : []), 'file'] as Field['mode'][]).map((k) => (
            <button type="button" key={k} aria-pressed={f.mode === k} onClick={() => set({ ...f, mode: k })}>{k === 'lines' ? 'text by line' : k}</button>
          ))}
        </div>
      )}
      {bytes && f.mode === 'file'
        ? <label>File<input type="file" multiple={many} required onChange={(e) => set({ ...f, files: [...(e.currentTarget.files ?? [])] })} /></label>
        : <label>{bytes ? 'Text' : 'Numbers; one alone fills the shape'}
          <textarea rows={bytes ? 3 : 2} value={f.text} spellcheck={bytes} onInput={(e) => set({ ...f, text: e.currentTarget.value })} /></label>}
      {url && <img class="preview" src={url} alt={`The file chosen for ${m.name}`} />}
      <label class="short">Shape<input value={f.shape} inputMode="numeric" onInput={(e) => set({ ...f, shape: e.currentTarget.value })} /></label>
    </fieldset>
  );
};

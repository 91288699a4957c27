import { useLive } from '../live';
import { link } from '../route';
import { Page } from '../parts/bits';
import { ModelTable } from '../parts/models';

/** Models lists every model and ensemble; each leads to its page, an ensemble to its pipeline. */
export const Models = ({ query }: { query: Record<string, string> }) => {
  const down = (useLive().models ?? []).filter((m) => m.state !== 'READY').length;
  return (
    <Page title="Models" actions={down > 0 ? <a class="button" href={link('models', '', { ...query, kind: 'unhealthy' })}>{down} not ready</a> : undefined}>
      <ModelTable page="models" query={query} rows={60} />
    </Page>
  );
};

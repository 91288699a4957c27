// The plans of ensembles, each read once.
import { api, type GraphView } from './api';

const most = 1500; // plans that are remembered
const plans = new Map<string, Promise<GraphView>>();

/** plan reads the plan of a version, or returns the one that was read before. A failure is not remembered. */
export function plan(model: string, version: string): Promise<GraphView> {
  const key = `${model} ${version}`;
  const known = plans.get(key);
  if (known) return known;
  const asked = api.graph(model, Number(version));
  plans.set(key, asked);
  asked.catch(() => plans.delete(key));
  if (plans.size > most) plans.delete(plans.keys().next().value!);
  return asked;
}

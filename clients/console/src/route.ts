/** Addresses of views: `#/waiting?job=x%2Fgang` names everything that a colleague needs to see the same. */

export const VIEWS = ['cluster', 'queues', 'waiting', 'policy', 'decisions'] as const;
export type View = (typeof VIEWS)[number];

export interface Route {
  view: View;
  /** Parameters of the view, such as the job that is explained. */
  parameters: Record<string, string>;
}

/** Reads the fragment of an address. An unknown view is the cluster. */
export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?');
  const view = VIEWS.find((one) => one === path) ?? 'cluster';
  return { view, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The fragment of a route. Parameters without a value are left out. */
export function formatRoute(view: View, parameters: Record<string, string | undefined> = {}): string {
  const given = Object.entries(parameters).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const query = new URLSearchParams(given).toString();
  return query ? `#/${view}?${query}` : `#/${view}`;
}

/** Changes parameters of the view that is shown, without a new entry in the history. */
export function changeParameters(route: Route, parameters: Record<string, string | undefined>): void {
  location.replace(formatRoute(route.view, { ...route.parameters, ...parameters }));
}

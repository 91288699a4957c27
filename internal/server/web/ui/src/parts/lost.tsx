// The banner of a server that does not respond any more.
import { clock } from '../format';
import { useLive } from '../live';

/** Lost says since when the figures are old, on every page. */
export const Lost = () => {
  const l = useLive();
  if (l.state !== 'disconnected') return null;
  return (
    <p class="lost" role="alert">
      {l.lostUs ? `Disconnected since ${clock(l.lostUs).slice(0, 8)}: the figures are those of that time.` : 'Not connected to the server.'}
      {l.error && ` The server refuses: ${l.error}; a token is entered under Settings.`} Trying again every 2 seconds.
    </p>
  );
};

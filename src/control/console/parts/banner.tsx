import { snapshot } from '../live.ts';

/** Tells on every page what is wrong now. It goes away with its cause. */
export function Banner() {
  const gateway = snapshot.value?.gateway;
  const wrong = gateway !== undefined && gateway.state !== 'ok';
  return (
    <div role="alert">
      {wrong && (
        <ul class={`banner ${gateway.state}`}>
          {gateway.reasons.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

import { render } from 'preact';
import { App } from './app.tsx';
import { follow } from './live.ts';

const place = document.getElementById('app');
if (place === null) throw new Error('index.html has no #app');
place.replaceChildren();
render(<App />, place);
follow();

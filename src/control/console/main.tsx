import { render } from 'preact';
import { App } from './app.tsx';
import { follow } from './live.ts';

render(<App />, document.body);
follow();

import { keepPage } from './return.ts';

keepPage();

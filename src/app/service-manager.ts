/** Receives the states of the gateway, as systemd does (sd_notify(3)). `status` is a line for people. */
export interface ServiceManager {
  /** Both planes listen, or a reload has ended. */
  ready(status: string): void;
  reloading(): void;
  stopping(): void;
}

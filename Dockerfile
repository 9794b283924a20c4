# The only image that the build takes anything from. The tag names the exact version of Node.js, but its owner can move
# it; for an image to deploy give the digest, too (docs/security/supply-chain.md says how to find it):
#   docker build --build-arg NODE_IMAGE=node:26.10.0-slim@sha256:… .
ARG NODE_IMAGE=node:26.10.0-slim

# Its result is the same for every platform, so none is emulated for it.
FROM --platform=$BUILDPLATFORM ${NODE_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json ./
# No package needs its scripts here, and none gets to run them.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
RUN npm run build
RUN npm prune --omit=dev --ignore-scripts --no-audit --no-fund
# Becomes the folder that the gateway may write to: what is mounted there is the user's from the start.
RUN mkdir state

FROM ${NODE_IMAGE}
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /build/package.json ./
COPY --from=build /build/LICENSE ./
COPY --from=build /build/config ./config
COPY --from=build /build/node_modules ./node_modules
COPY --from=build /build/dist ./dist
COPY --from=build --chown=1000:1000 /build/state /var/lib/digest-gateway

# The number of the user `node`: Kubernetes cannot tell from a name that it is not root.
USER 1000:1000
EXPOSE 8080 8081
# Another control port: --health-cmd, or healthcheck in Compose.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8081/livez').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# The flags are those of the program's first line.
ENTRYPOINT ["node", "--expose-gc", "--disable-sigusr1", "--min-semi-space-size=8", "--max-semi-space-size=8", "/app/dist/cli/digest-gateway.js"]
CMD ["serve", "--config", "/etc/digest-gateway/gateway.yaml"]

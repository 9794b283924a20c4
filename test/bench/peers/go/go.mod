module digest-gateway/bench/go-reverse-proxy

go 1.19

{{/* Name of all objects. The hash that a StatefulSet adds to a label leaves 52 characters. */}}
{{- define "digest-gateway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The alerts and the dashboard know the gateway by this name, which the PodMonitor makes the job. */}}
{{- define "digest-gateway.selectorLabels" -}}
app.kubernetes.io/name: digest-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "digest-gateway.labels" -}}
{{ include "digest-gateway.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "digest-gateway.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* A duration of the configuration, such as 500ms or 30s, in seconds, rounded up. */}}
{{- define "digest-gateway.seconds" -}}
{{- $milliseconds := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- $unit := regexFind "[a-z]+$" (toString .) -}}
{{- if not (and (regexMatch "^[0-9]+[a-z]+$" (toString .)) (hasKey $milliseconds $unit)) -}}
{{- fail (printf "config.drain: %v is not a duration, such as 500ms, 30s or 5m" .) -}}
{{- end -}}
{{- div (add (mul (regexFind "^[0-9]+" (toString .) | int) (get $milliseconds $unit)) 999) 1000 -}}
{{- end -}}

{{/* The listeners as JSON, with defaults: {"all": [...]}. One mapping is a list of one. */}}
{{- define "digest-gateway.listeners" -}}
{{- $listen := default dict .Values.config.listen -}}
{{- $listeners := list -}}
{{- range (ternary $listen (list $listen) (kindIs "slice" $listen)) -}}
{{- $listeners = append $listeners (mergeOverwrite (dict "address" "0.0.0.0" "port" 8080) .) -}}
{{- end -}}
{{- dict "all" $listeners | toJson -}}
{{- end -}}

{{/* The name of the port of a listener by its place. */}}
{{- define "digest-gateway.portName" -}}
{{- if eq (int .) 0 }}http{{ else }}http-{{ . }}{{ end -}}
{{- end -}}

{{/* The scheme of a listener. */}}
{{- define "digest-gateway.scheme" -}}
{{- ternary "https" "http" (hasKey . "tls") -}}
{{- end -}}

{{/* Changes with the part of the configuration that a reload cannot change. */}}
{{- define "digest-gateway.restartChecksum" -}}
{{- $listen := list -}}
{{- range (include "digest-gateway.listeners" . | fromJson).all -}}
{{- $listen = append $listen (omit . "hosts" "trustedProxies" "forwardedHeader") -}}
{{- end -}}
{{- $audit := omit (default dict .Values.config.audit) "parameters" -}}
{{- with $audit.pseudonyms -}}
{{- $audit = set $audit "pseudonyms" (omit . "fields") -}}
{{- end -}}
{{- toYaml (list $listen .Values.config.control .Values.config.redis $audit .Values.config.workers) | sha256sum -}}
{{- end -}}

{{/* Fails with the reason if the configuration does not fit the pods. */}}
{{- define "digest-gateway.validate" -}}
{{- range regexFindAll "/run/secrets/[^/\"' ]+" (toYaml .Values.config) -1 -}}
{{- if not (hasKey $.Values.secrets (base .)) -}}
{{- fail (printf "config names files in %s: add the Secret with them as secrets.%s" . (base .)) -}}
{{- end -}}
{{- end -}}
{{- $listeners := (include "digest-gateway.listeners" . | fromJson).all -}}
{{- $ports := list (int .Values.config.control.port) -}}
{{- range $listeners -}}
{{- if has (int .port) $ports -}}
{{- fail (printf "config.listen: port %d is taken by another listener or by config.control: give each a port of its own" (int .port)) -}}
{{- end -}}
{{- $ports = append $ports (int .port) -}}
{{- end -}}
{{- if ne (len .Values.furtherServices) (sub (len $listeners) 1 | int) -}}
{{- fail (printf "config.listen has %d listeners and furtherServices %d entries: list one for each listener after the first" (len $listeners) (len .Values.furtherServices)) -}}
{{- end -}}
{{- with .Values.config.audit -}}
{{- if not (hasPrefix "/var/lib/digest-gateway/" (toString .directory)) -}}
{{- fail "config.audit.directory must be below the volume of the replica: /var/lib/digest-gateway/audit" -}}
{{- end -}}
{{- with .pseudonyms -}}
{{- if not (hasPrefix "/var/lib/digest-gateway/" (toString .keysDirectory)) -}}
{{- fail "config.audit.pseudonyms.keysDirectory must be below the volume of the replica: /var/lib/digest-gateway/audit-keys" -}}
{{- end -}}
{{- end -}}
{{- if .replica -}}
{{- fail "config.audit.replica would be the same for all replicas: leave it out, the pods have names of their own" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A copied file of the chart. Without the check, rules or dashboard would be empty, and nobody would notice. */}}
{{- define "digest-gateway.file" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- if not ($root.Files.Get $name) -}}
{{- fail (printf "the chart lacks %s: run npm run build:chart in the checkout" $name) -}}
{{- end -}}
{{- $root.Files.Get $name -}}
{{- end -}}

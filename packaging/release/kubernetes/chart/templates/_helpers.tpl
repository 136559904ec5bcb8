{{- define "muster.name" -}}
{{- if contains "muster" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-muster" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "muster.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "muster.agentsURL" -}}
{{ .Values.agents.url | default (printf "https://%s-agents.%s.svc:8220" (include "muster.name" .) .Release.Namespace) }}
{{- end }}

{{- define "muster.adminURL" -}}
{{ .Values.admin.url | default (printf "https://%s-admin.%s.svc:8221" (include "muster.name" .) .Release.Namespace) }}
{{- end }}

{{- /* Refuses values with which servers would start and then fail, or lose data. */}}
{{- define "muster.check" -}}
{{- $v := .Values }}
{{- if and (gt (int $v.replicas) 1) (not $v.elasticsearch.hosts) }}
{{- fail (printf "replicas is %d, and the embedded store belongs to one server: set elasticsearch.hosts, or replicas=1" (int $v.replicas)) }}
{{- end }}
{{- if and $v.elasticsearch.hosts (not $v.sharedKeys.trustSecret) }}
{{- fail "sharedKeys.trustSecret is missing: with elasticsearch.hosts all servers need the same keys. Start a first server as in packaging/release/kubernetes/DESIGN.md, then: kubectl create secret generic muster-trust --from-file=first/trust" }}
{{- end }}
{{- if and $v.elasticsearch.hosts (not (or $v.sharedKeys.caSecret $v.tlsSecret)) }}
{{- fail "sharedKeys.caSecret is missing: with elasticsearch.hosts all servers need the CA that agents pin. Start a first server as in packaging/release/kubernetes/DESIGN.md, then: kubectl create secret generic muster-ca --from-file=first/tls; or set tlsSecret" }}
{{- end }}
{{- if and $v.sharedKeys.caSecret $v.tlsSecret }}
{{- fail "sharedKeys.caSecret and tlsSecret are both set: the server uses your certificate and not the CA. Leave one out" }}
{{- end }}
{{- if and $v.elasticsearch.username (not $v.elasticsearch.credentialsSecret) }}
{{- fail "elasticsearch.username needs elasticsearch.credentialsSecret, a Secret with the key password: kubectl create secret generic muster-elasticsearch --from-file=password=FILE" }}
{{- end }}
{{- if and $v.serviceMonitor.enabled (not $v.serviceMonitor.keySecret) }}
{{- fail "serviceMonitor.keySecret is missing, a Secret with the key api-key: /metrics needs an admin key, which `muster admin-keys create prometheus` makes" }}
{{- end }}
{{- if and $v.serviceMonitor.enabled (not (or $v.serviceMonitor.caSecret $v.sharedKeys.caSecret $v.tlsSecret)) }}
{{- fail "serviceMonitor.caSecret is missing, a Secret with the key ca.crt: the server's own CA, which Prometheus does not know" }}
{{- end }}
{{- range $key := list "data" "store" }}
{{- if hasKey $v.config $key }}
{{- fail (printf "config.%s is set by the chart: see persistence and elasticsearch" $key) }}
{{- end }}
{{- end }}
{{- range $key := list "agents" "admin" }}
{{- range $part := list "listen" "url" }}
{{- if hasKey (get $v.config $key | default dict) $part }}
{{- fail (printf "config.%s.%s is set by the chart: use %s.url; the ports are 8220 and 8221" $key $part $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $part := list "certificate" "key" }}
{{- if hasKey (get $v.config "tls" | default dict) $part }}
{{- fail (printf "config.tls.%s is set by the chart: use tlsSecret" $part) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The server's configuration file. */}}
{{- define "muster.config" -}}
{{- $name := include "muster.name" . }}
{{- $agents := merge (dict "listen" ":8220" "url" (include "muster.agentsURL" .)) (.Values.config.agents | default dict) }}
{{- $admin := merge (dict "listen" ":8221" "url" (include "muster.adminURL" .)) (.Values.config.admin | default dict) }}
{{- $tls := deepCopy (.Values.config.tls | default dict) }}
{{- $names := $tls.names | default list }}
{{- range $s := list "agents" "admin" }}
{{- $names = concat $names (list (printf "%s-%s" $name $s) (printf "%s-%s.%s" $name $s $.Release.Namespace) (printf "%s-%s.%s.svc" $name $s $.Release.Namespace)) }}
{{- end }}
{{- $_ := set $tls "names" (uniq $names) }}
{{- if .Values.tlsSecret }}
{{- $_ := set $tls "certificate" "/etc/muster/tls/tls.crt" }}
{{- $_ := set $tls "key" "/etc/muster/tls/tls.key" }}
{{- end }}
{{- $config := merge (dict "data" "/var/lib/muster" "agents" $agents "admin" $admin "tls" $tls) (omit .Values.config "agents" "admin" "tls") }}
{{- with .Values.elasticsearch }}
{{- if .hosts }}
{{- $es := dict "hosts" .hosts "prefix" .prefix }}
{{- if .username }}{{- $_ := set $es "username" .username }}{{- end }}
{{- if .caSecret }}{{- $_ := set $es "ca" "/etc/muster/elasticsearch/ca.crt" }}{{- end }}
{{- $_ := set $config "store" (dict "elasticsearch" $es) }}
{{- end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

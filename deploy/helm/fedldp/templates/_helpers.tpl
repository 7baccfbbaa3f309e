{{- define "fedldp.labels" -}}
app.kubernetes.io/name: fedldp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fedldp.selector" -}}
app.kubernetes.io/name: fedldp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/yamltext"
	"github.com/muster-fleet/muster/server/fleet"
)

// Rendered is a policy as agents receive it.
type Rendered struct {
	ID       string
	Revision int64
	Body     json.RawMessage
}

// Hosts returns the servers that agents of the policy follow: fleet.hosts, whichever field of the
// policy it comes from.
func (r Rendered) Hosts() ([]string, error) {
	var p struct {
		Fleet struct {
			Hosts []string `json:"hosts"`
		} `json:"fleet"`
	}
	err := json.Unmarshal(r.Body, &p)
	return p.Fleet.Hosts, err
}

// Render returns a policy as agents receive it.
func (s *Service) Render(ctx context.Context, policyID string) (Rendered, error) {
	p, err := s.Get(ctx, policyID)
	if err != nil {
		return Rendered{}, err
	}
	objects := s.Objects
	parts := renderer{Policy: p, Proxies: map[string]fleet.FleetProxy{}}
	if objects.Tokens != nil {
		parts.UninstallTokenHash = objects.Tokens.Hash(p.ID)
	}
	if parts.Host, err = objects.HostFor(ctx, p.FleetServerHostID); err != nil {
		return Rendered{}, err
	}
	if parts.Source, _, err = objects.Sources().For(ctx, p.DownloadSourceID); err != nil {
		return Rendered{}, err
	}
	if parts.Data, parts.Monitoring, err = s.OutputsOf(ctx, p); err != nil {
		return Rendered{}, err
	}
	proxies, err := objects.Proxies().List(ctx)
	if err != nil {
		return Rendered{}, err
	}
	for _, x := range proxies {
		parts.Proxies[x.ID] = x
	}
	body, err := parts.render()
	return Rendered{ID: p.ID, Revision: p.PolicyRev, Body: body}, err
}

// renderer has what an agent's policy is rendered from.
type renderer struct {
	Policy fleet.Policy
	// Host and Source are empty if there is none.
	Host   fleet.FleetServerHost
	Source fleet.DownloadSource
	// Data and Monitoring are nil if there is no output.
	Data, Monitoring   *fleet.Output
	Proxies            map[string]fleet.FleetProxy
	UninstallTokenHash string
}

// doc is a JSON object.
type doc = map[string]any

// render returns the policy of an agent. It has the shape that Kibana gives it in
// full_agent_policy.ts, and that Fleet Server makes of that: secret_paths names the secret
// values, which an agent removes from its diagnostics. There are no inputs, since Muster
// has no integrations. The signed part is empty, and so is the key to check it with: an
// agent that has such a key also refuses actions that are not signed, as Muster's are not.
//
// Muster's agents also get components. Elastic's agents get the same policy: they read
// outputs, inputs, agent and fleet of it, and the keys of collectors (receivers, service
// and so on), and ignore others.
func (p renderer) render() (json.RawMessage, error) {
	secrets := []string{}
	outputs, permissions := doc{}, doc{}
	for _, o := range []*fleet.Output{p.Data, p.Monitoring} {
		if o == nil || outputs[o.PolicyName()] != nil {
			continue
		}
		out, err := p.output(o)
		if err != nil {
			return nil, err
		}
		name := o.PolicyName()
		outputs[name] = out
		for path, secret := range o.Secrets() {
			if *secret != "" && path != "kibana_api_key" { // agents do not get that
				secrets = append(secrets, "outputs."+name+"."+path)
			}
		}
		if o.Type == fleet.OutputElasticsearch || o.Type == fleet.OutputRemoteElasticsearch {
			permissions[name] = doc{"_elastic_agent_checks": doc{"cluster": []string{"monitor"}}}
		}
	}
	features := doc{}
	for _, f := range p.Policy.AgentFeatures {
		features[f.Name] = doc{"enabled": f.Enabled}
	}
	monitoring, err := p.monitoring()
	if err != nil {
		return nil, err
	}
	agent := doc{
		"monitoring": monitoring, "features": features,
		"protection": doc{"enabled": p.Policy.Protected, "uninstall_token_hash": p.UninstallTokenHash, "signing_key": ""},
	}
	if p.Source.Host != "" {
		agent["download"] = p.download()
		if p.Source.SSL != nil && p.Source.SSL.Key != "" {
			secrets = append(secrets, "agent.download.ssl.key")
		}
	}
	whole := doc{
		"id": p.Policy.ID, "revision": p.Policy.PolicyRev, "agent": agent, "inputs": []any{}, "outputs": outputs, "output_permissions": permissions,
		"signed": doc{"data": "", "signature": ""},
	}
	if len(p.Policy.SpaceIDs) > 0 {
		whole["namespaces"] = p.Policy.SpaceIDs
	}
	if len(p.Policy.Components) > 0 {
		whole["components"] = p.Policy.Components
	}
	if len(p.Host.HostURLs) > 0 {
		whole["fleet"] = p.fleet()
		if p.Host.SSL != nil && p.Host.SSL.AgentKey != "" {
			secrets = append(secrets, "fleet.ssl.key")
		}
	}
	slices.Sort(secrets)
	whole["secret_paths"] = secrets
	if err := p.advanced(whole); err != nil {
		return nil, err
	}
	if len(p.Policy.Overrides) > 0 {
		var overrides doc
		if err := json.Unmarshal(p.Policy.Overrides, &overrides); err != nil {
			return nil, fmt.Errorf("overrides of the policy %s: %w", p.Policy.ID, err)
		}
		if whole, err = generic(whole); err != nil {
			return nil, err
		}
		merge(whole, overrides)
	}
	// Elastic Agents from 8.18.4 on fail with an empty object in one of these places
	// ("unsupported type for SkipKeys option outputs"), and need none of them.
	for _, name := range []string{"inputs", "outputs"} {
		if d, ok := whole[name].(doc); whole[name] == nil || ok && len(d) == 0 {
			delete(whole, name)
		}
	}
	return json.Marshal(whole)
}

// monitoring returns agent.monitoring. Logs and metrics stay off without an output: an agent
// would fail with them.
func (p renderer) monitoring() (doc, error) {
	var http doc
	var diagnostics struct {
		Limit    doc `json:"limit"`
		Uploader doc `json:"uploader"`
	}
	for _, part := range []struct {
		text json.RawMessage
		into any
	}{{p.Policy.MonitoringHTTP, &http}, {p.Policy.MonitoringDiagnostics, &diagnostics}} {
		if len(part.text) > 0 {
			if err := json.Unmarshal(part.text, part.into); err != nil {
				return nil, fmt.Errorf("monitoring of the policy %s: %w", p.Policy.ID, err)
			}
		}
	}
	collects := len(p.Policy.MonitoringEnabled) > 0 && p.Monitoring != nil
	m := doc{
		"enabled": collects || http["enabled"] == true || p.Policy.KeepMonitoringAlive != nil && *p.Policy.KeepMonitoringAlive,
		"logs":    false, "metrics": false, "traces": false,
	}
	if collects {
		m["namespace"], m["use_output"] = p.Policy.Namespace, p.Monitoring.PolicyName()
		for _, kind := range p.Policy.MonitoringEnabled {
			m[kind] = true
		}
	}
	if p.Policy.MonitoringPprof != nil {
		m["pprof"] = doc{"enabled": *p.Policy.MonitoringPprof}
	}
	if http["enabled"] == true {
		h := doc{"enabled": true}
		for _, name := range []string{"host", "port"} {
			if v := http[name]; v != nil && v != "" && v != 0.0 {
				h[name] = v
			}
		}
		m["http"] = h
	}
	d := doc{}
	if len(diagnostics.Limit) > 0 {
		d["limit"] = diagnostics.Limit
	}
	if len(diagnostics.Uploader) > 0 {
		d["uploader"] = diagnostics.Uploader
	}
	if len(d) > 0 {
		m["diagnostics"] = d
	}
	return m, nil
}

func (p renderer) download() doc {
	d := doc{"sourceURI": p.Source.Host}
	if ssl := p.Source.SSL; ssl != nil {
		d["ssl"] = clientSSL(ssl.CertificateAuthorities, ssl.Certificate, ssl.Key)
	}
	if x, ok := p.Proxies[p.Source.ProxyID]; ok {
		useProxy(d, x)
		// The certificates of the source stay: Kibana drops them for those of the proxy, and
		// then an agent cannot verify a source with a CA of its own.
		if own := proxySSL(x); len(own) > 0 {
			ssl, _ := d["ssl"].(doc)
			d["ssl"] = joinSSL(ssl, own)
		}
	}
	return d
}

func (p renderer) fleet() doc {
	f := doc{"hosts": p.Host.HostURLs}
	ssl := doc{}
	if s := p.Host.SSL; s != nil {
		ssl = clientSSL(s.AgentCertificateAuthorities, s.AgentCertificate, s.AgentKey)
	}
	if x, ok := p.Proxies[p.Host.ProxyID]; ok {
		useProxy(f, x)
		if own := proxySSL(x); len(own) > 0 {
			ssl = joinSSL(ssl, own)
			ssl["renegotiation"], ssl["verification_mode"] = "never", ""
		}
	}
	if len(ssl) > 0 {
		f["ssl"] = ssl
	}
	return f
}

func (p renderer) output(o *fleet.Output) (doc, error) {
	out := doc{}
	if o.ConfigYAML != "" {
		if err := yamltext.Unmarshal([]byte(o.ConfigYAML), &out); err != nil {
			return nil, fmt.Errorf("config_yaml of the output %s: %w", o.ID, err)
		}
		if out == nil {
			out = doc{}
		}
	}
	shipper, _ := out["shipper"].(doc)
	useShipper := o.Shipper != nil && shipper != nil && shipper["enabled"] != false
	fromYAML, _ := out["ssl"].(doc)
	out["type"], out["hosts"] = o.Type, o.Hosts
	if o.Type == fleet.OutputKafka {
		addKafka(out, o)
	}
	if useShipper {
		addShipper(out, o.Shipper)
	}
	set(out, "ca_sha256", o.CASHA256)
	set(out, "ssl.ca_trusted_fingerprint", o.CATrustedFingerprint)
	if o.SSL != nil {
		ssl := clientSSL(o.SSL.CertificateAuthorities, o.SSL.Certificate, o.SSL.Key)
		set(ssl, "verification_mode", o.SSL.VerificationMode)
		maps.Copy(ssl, fromYAML)
		out["ssl"] = ssl
	}
	if x, ok := p.Proxies[o.ProxyID]; ok {
		useProxy(out, x)
		if own := proxySSL(x); len(own) > 0 {
			ssl, _ := out["ssl"].(doc)
			out["ssl"] = joinSSL(ssl, own)
		}
	}
	switch o.Type {
	case fleet.OutputRemoteElasticsearch:
		set(out, "service_token", o.ServiceToken)
		if o.SyncIntegrations != nil {
			out["sync_integrations"] = *o.SyncIntegrations
		}
		if o.SyncUninstalledIntegrations != nil {
			out["sync_uninstalled_integrations"] = *o.SyncUninstalledIntegrations
		}
		set(out, "preset", o.Preset)
	case fleet.OutputElasticsearch:
		set(out, "preset", o.Preset)
	case fleet.OutputLogstash, fleet.OutputKafka:
	}
	return out, nil
}

func addKafka(out doc, o *fleet.Output) {
	set(out, "client_id", o.ClientID)
	set(out, "version", o.Version)
	set(out, "key", o.Key)
	set(out, "compression", o.Compression)
	if o.Compression == "gzip" && o.CompressionLevel != nil {
		out["compression_level"] = *o.CompressionLevel
	}
	set(out, "username", o.Username)
	set(out, "password", o.Password)
	if o.SASL != nil {
		out["sasl"] = o.SASL
	}
	events := func(e *fleet.OutputEvents) doc {
		if e == nil || e.GroupEvents == nil || *e.GroupEvents == 0 {
			return doc{"group_events": 1}
		}
		return doc{"group_events": *e.GroupEvents}
	}
	partition := doc{}
	switch o.Partition {
	case "":
	case "random":
		partition["random"] = events(o.Random)
	case "round_robin":
		partition["round_robin"] = events(o.RoundRobin)
	default:
		field := ""
		if o.Hash != nil {
			field = o.Hash.Hash
		}
		partition["hash"] = doc{"hash": field}
	}
	out["partition"] = partition
	set(out, "topic", o.Topic)
	headers := []fleet.OutputHeader{}
	for _, h := range o.Headers {
		if h.Key != "" || h.Value != "" {
			headers = append(headers, h)
		}
	}
	out["headers"] = headers
	if o.Timeout != nil {
		out["timeout"] = *o.Timeout
	}
	if o.BrokerTimeout != nil {
		out["broker_timeout"] = *o.BrokerTimeout
	}
	if o.RequiredAcks != nil {
		out["required_acks"] = *o.RequiredAcks
	}
}

func addShipper(out doc, s *fleet.OutputShipper) {
	if s.DiskQueueEnabled != nil && *s.DiskQueueEnabled {
		out["shipper"] = doc{"queue": doc{"disk": doc{
			"path": s.DiskQueuePath, "max_size": s.DiskQueueMaxSize, "use_compression": s.DiskQueueCompressionEnabled,
		}}}
	}
	out["loadbalance"], out["compression_level"], out["queue_flush_timeout"] = s.Loadbalance, s.CompressionLevel, s.QueueFlushTimeout
	out["max_batch_bytes"], out["mem_queue_events"] = s.MaxBatchBytes, s.MemQueueEvents
}

// set sets a field unless the value is empty.
func set(d doc, name, value string) {
	if value != "" {
		d[name] = value
	}
}

func clientSSL(authorities []string, certificate, key string) doc {
	d := doc{}
	if len(authorities) > 0 {
		d["certificate_authorities"] = authorities
	}
	set(d, "certificate", certificate)
	set(d, "key", key)
	return d
}

func useProxy(d doc, x fleet.FleetProxy) {
	d["proxy_url"] = x.URL
	if len(x.Headers) > 0 {
		d["proxy_headers"] = x.Headers
	}
}

func proxySSL(x fleet.FleetProxy) doc {
	var authorities []string
	if x.CertificateAuthorities != "" {
		authorities = []string{x.CertificateAuthorities}
	}
	return clientSSL(authorities, x.Certificate, x.CertificateKey)
}

// joinSSL returns ssl with the authorities of both, and otherwise the certificate of the
// proxy.
func joinSSL(ssl, proxy doc) doc {
	out := doc{}
	maps.Copy(out, ssl)
	own, _ := ssl["certificate_authorities"].([]string)
	maps.Copy(out, proxy)
	if more, _ := proxy["certificate_authorities"].([]string); len(own) > 0 {
		out["certificate_authorities"] = slices.Concat(own, more)
	}
	return out
}

// settingPlaces maps the advanced settings of policies to their places in agents'
// policies.
var settingPlaces = map[string]string{
	"agent_limits_go_max_procs":             "agent.limits.go_max_procs",
	"agent_download_timeout":                "agent.download.timeout",
	"agent_download_target_directory":       "agent.download.target_directory",
	"agent_logging_metrics_period":          "agent.logging.metrics.period",
	"agent_logging_level":                   "agent.logging.level",
	"agent_logging_to_files":                "agent.logging.to_files",
	"agent_logging_files_rotateeverybytes":  "agent.logging.files.rotateeverybytes",
	"agent_logging_files_keepfiles":         "agent.logging.files.keepfiles",
	"agent_logging_files_interval":          "agent.logging.files.interval",
	"agent_monitoring_runtime_experimental": "agent.monitoring._runtime_experimental",
	"agent_internal":                        "agent.internal",
}

// advanced sets the advanced settings, except for empty ones.
func (p renderer) advanced(whole doc) error {
	if len(p.Policy.AdvancedSettings) == 0 {
		return nil
	}
	var values doc
	if err := json.Unmarshal(p.Policy.AdvancedSettings, &values); err != nil {
		return fmt.Errorf("advanced_settings of the policy %s: %w", p.Policy.ID, err)
	}
	for name, value := range values {
		place := settingPlaces[name]
		if place == "" || value == nil || value == "" {
			continue
		}
		if text, ok := value.(string); ok && name == "agent_internal" {
			var internal doc
			if err := yamltext.Unmarshal([]byte(text), &internal); err != nil {
				return fmt.Errorf("agent_internal of the policy %s: %w", p.Policy.ID, err)
			}
			value = within(internal, "agent", "internal")
		}
		at := whole
		way := strings.Split(place, ".")
		for _, step := range way[:len(way)-1] {
			next, ok := at[step].(doc)
			if !ok {
				next = doc{}
				at[step] = next
			}
			at = next
		}
		at[way[len(way)-1]] = value
	}
	return nil
}

// within returns the object at a path, or the whole one if it has no such path: people
// write the path, or leave it out.
func within(whole doc, path ...string) doc {
	at := whole
	for _, step := range path {
		next, ok := at[step].(doc)
		if !ok {
			return whole
		}
		at = next
	}
	return at
}

// generic returns d with the types of decoded JSON, which merge knows.
func generic(d doc) (doc, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var out doc
	return out, json.Unmarshal(text, &out)
}

// merge changes into as the overrides say: objects are merged, lists are joined, and
// everything else is replaced.
func merge(into, overrides doc) {
	for name, value := range overrides {
		switch v := value.(type) {
		case doc:
			if own, ok := into[name].(doc); ok {
				merge(own, v)
				continue
			}
		case []any:
			if own, ok := into[name].([]any); ok {
				into[name] = slices.Concat(own, v)
				continue
			}
		}
		into[name] = value
	}
}

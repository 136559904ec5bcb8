package infra

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/yamltext"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// maxHosts is Kibana's bound of the addresses of one object.
const maxHosts = 10

func always(names ...string) func(string) []string { return func(string) []string { return names } }

// EditHosts changes the hosts of Fleet Server. With overrideLimit it does so even if more agents
// follow them to another server than the removal limit permits.
func (s *Service) EditHosts(overrideLimit bool) Editor[fleet.FleetServerHost, *fleet.FleetServerHost] {
	return Editor[fleet.FleetServerHost, *fleet.FleetServerHost]{Set: s.Hosts(), service: s, rules: rules[fleet.FleetServerHost]{
		verb:     "fleet_server_host",
		create:   always("id", "name", "host_urls", "is_default", "is_internal", "is_preconfigured", "proxy_id", "ssl"),
		update:   always("name", "host_urls", "is_default", "is_internal", "proxy_id", "ssl"),
		required: [][2]string{{"name", "string"}, {"host_urls", "array"}},
		cleared:  func(Fields) []string { return []string{"proxy_id"} },
		secrets:  []string{"ssl.key", "ssl.es_key", "ssl.agent_key"},
		prepare:  func(v *fleet.FleetServerHost) { v.Preconfigured = false },
		check: func(ctx context.Context, s *Service, old, v *fleet.FleetServerHost, given Fields) error {
			if err := normalize("body.host_urls", v.HostURLs); err != nil {
				return err
			}
			if v.SSL != nil && !slices.Contains([]string{"", "optional", "required", "none"}, v.SSL.ClientAuth) {
				return fleet.FieldError("body.ssl.client_auth", "is %q, want optional, required or none", v.SSL.ClientAuth)
			}
			if err := keepDefault(old != nil && old.Default && old.ID == DefaultHostID, v.Default, given, "Fleet server host", v.ID); err != nil {
				return err
			}
			return s.checkProxy(ctx, v.ProxyID)
		},
		allow: func(ctx context.Context, before, after []fleet.FleetServerHost, actor string) error {
			return s.Policies.AllowHosts(ctx, before, after, overrideLimit, actor)
		},
		keep: func(v *fleet.FleetServerHost) error {
			if v.Default {
				return fleet.Errorf(fleet.Invalid, "Default Fleet Server hosts %s cannot be deleted.", v.ID)
			}
			return nil
		},
		uses: usesHost,
		drop: func(p *fleet.Policy, id string) bool { return clearID(&p.FleetServerHostID, id) },
		unset: func(v, other *fleet.FleetServerHost) bool {
			return clearFlag(&v.Default, other.Default)
		},
	}}
}

func usesHost(p fleet.Policy, v *fleet.FleetServerHost) bool {
	return p.FleetServerHostID == v.ID || v.Default && p.FleetServerHostID == ""
}

// EditSources changes the sources of packages.
func (s *Service) EditSources() Editor[fleet.DownloadSource, *fleet.DownloadSource] {
	names := always("id", "name", "host", "is_default", "proxy_id", "ssl")
	return Editor[fleet.DownloadSource, *fleet.DownloadSource]{Set: s.Sources(), service: s, rules: rules[fleet.DownloadSource]{
		verb: "download_source", create: names, update: names,
		required: [][2]string{{"name", "string"}, {"host", "string"}}, requiredUpdate: true,
		cleared: func(Fields) []string { return []string{"is_default"} }, // its default in the schema is false
		secrets: []string{"ssl.key"},
		check: func(ctx context.Context, s *Service, old, v *fleet.DownloadSource, given Fields) error {
			if err := checkURI("body.host", v.Host); err != nil {
				return err
			}
			all, err := s.Sources().List(ctx)
			if err != nil {
				return err
			}
			for _, other := range all {
				if other.Name == v.Name && other.ID != v.ID {
					return fleet.Errorf(fleet.Invalid, "Download Source '%s' already exists with name '%s'", other.ID, v.Name)
				}
			}
			if err := keepDefault(old != nil && old.Default && old.ID == DefaultSourceID, v.Default, given, "Download source", v.ID); err != nil {
				return err
			}
			return s.checkProxy(ctx, v.ProxyID)
		},
		keep: func(v *fleet.DownloadSource) error {
			if v.Default {
				return fleet.Errorf(fleet.Invalid, "Default Download source %s cannot be deleted.", v.ID)
			}
			return nil
		},
		uses: usesSource,
		drop: func(p *fleet.Policy, id string) bool { return clearID(&p.DownloadSourceID, id) },
		unset: func(v, other *fleet.DownloadSource) bool {
			return clearFlag(&v.Default, other.Default)
		},
	}}
}

func usesSource(p fleet.Policy, v *fleet.DownloadSource) bool {
	return p.DownloadSourceID == v.ID || v.Default && p.DownloadSourceID == ""
}

// EditProxies changes the proxies.
func (s *Service) EditProxies(ctx context.Context) (Editor[fleet.FleetProxy, *fleet.FleetProxy], error) {
	users, err := s.proxyUsers(ctx)
	return Editor[fleet.FleetProxy, *fleet.FleetProxy]{Set: s.Proxies(), service: s, rules: rules[fleet.FleetProxy]{
		verb:     "proxy",
		create:   always("id", "name", "url", "proxy_headers", "certificate_authorities", "certificate", "certificate_key", "is_preconfigured"),
		update:   always("name", "url", "proxy_headers", "certificate_authorities", "certificate", "certificate_key"),
		required: [][2]string{{"url", "string"}, {"name", "string"}},
		cleared: func(Fields) []string {
			return []string{"proxy_headers", "certificate_authorities", "certificate", "certificate_key"}
		},
		prepare: func(v *fleet.FleetProxy) { v.Preconfigured = false },
		check: func(_ context.Context, _ *Service, _, v *fleet.FleetProxy, _ Fields) error {
			u, err := url.Parse(v.URL)
			if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
				return fleet.FieldError("body.url", "Invalid URL")
			}
			for name, value := range v.Headers {
				switch value.(type) {
				case string, bool, float64:
				default:
					return fleet.FieldError("body.proxy_headers."+name, "is no string, boolean or number")
				}
			}
			return nil
		},
		keep:    func(*fleet.FleetProxy) error { return nil },
		uses:    func(p fleet.Policy, v *fleet.FleetProxy) bool { return users[v.ID] != nil && users[v.ID](p) },
		release: releaseProxy,
	}}, err
}

// proxyUsers returns, for each proxy, which policies use it through another object.
func (s *Service) proxyUsers(ctx context.Context) (map[string]func(fleet.Policy) bool, error) {
	users := map[string]func(fleet.Policy) bool{}
	add := func(proxyID string, uses func(fleet.Policy) bool) {
		if proxyID == "" {
			return
		}
		before := users[proxyID]
		users[proxyID] = func(p fleet.Policy) bool { return uses(p) || before != nil && before(p) }
	}
	hosts, err := s.Hosts().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range hosts {
		add(v.ProxyID, func(p fleet.Policy) bool { return usesHost(p, &v) })
	}
	sources, err := s.Sources().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range sources {
		add(v.ProxyID, func(p fleet.Policy) bool { return usesSource(p, &v) })
	}
	outputs, err := s.Outputs().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range outputs {
		add(v.ProxyID, func(p fleet.Policy) bool { return usesOutput(p, &v) })
	}
	return users, nil
}

// releaseProxy removes the id of a deleted proxy from all objects.
func releaseProxy(ctx context.Context, s *Service, id string) error {
	if err := release(ctx, s.Store.FleetServerHosts(), func(v *fleet.FleetServerHost) bool { return clearID(&v.ProxyID, id) }); err != nil {
		return err
	}
	if err := release(ctx, s.Store.DownloadSources(), func(v *fleet.DownloadSource) bool { return clearID(&v.ProxyID, id) }); err != nil {
		return err
	}
	return release(ctx, s.Store.Outputs(), func(v *fleet.Output) bool { return clearID(&v.ProxyID, id) })
}

func release[T any](ctx context.Context, stored store.Collection[T], drop func(*T) bool) error {
	all, _, err := stored.List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, v := range all {
		if drop(&v) {
			if _, err := stored.Update(ctx, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) checkProxy(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	_, err := s.Proxies().Get(ctx, id)
	if fleet.KindOf(err) == fleet.NotFound {
		return fleet.Errorf(fleet.Invalid, "Proxy %s not found", id)
	}
	return err
}

// outputFields are the fields of an output by its type.
func outputFields(kind string) []string {
	base := []string{
		"id", "name", "type", "hosts", "is_default", "is_default_monitoring", "is_internal", "is_preconfigured", "ca_sha256", "ca_trusted_fingerprint",
		"config_yaml", "ssl", "proxy_id", "shipper", "allow_edit",
	}
	switch fleet.OutputType(kind) {
	case fleet.OutputElasticsearch:
		return append(base, "preset", "write_to_logs_streams")
	case fleet.OutputRemoteElasticsearch:
		return append(base, "preset", "write_to_logs_streams", "service_token", "sync_integrations", "kibana_url", "kibana_api_key", "sync_uninstalled_integrations")
	case fleet.OutputKafka:
		return append(base, "version", "key", "compression", "compression_level", "client_id", "auth_type", "connection_type", "username", "password", "sasl",
			"partition", "random", "round_robin", "hash", "topic", "headers", "timeout", "broker_timeout", "required_acks")
	case fleet.OutputLogstash:
	}
	return base
}

// EditOutputs changes the outputs.
func (s *Service) EditOutputs() Editor[fleet.Output, *fleet.Output] {
	return Editor[fleet.Output, *fleet.Output]{Set: s.Outputs(), service: s, rules: rules[fleet.Output]{
		verb: "output", create: outputFields, update: outputFields, kind: func(v *fleet.Output) string { return string(v.Type) },
		required: [][2]string{{"name", "string"}, {"type", "string"}, {"hosts", "array"}},
		cleared: func(given Fields) []string {
			switch fleet.OutputType(given.text("type")) {
			case fleet.OutputKafka:
				return []string{"username", "password", "sasl", "ssl"}
			case fleet.OutputRemoteElasticsearch:
				return []string{"service_token", "kibana_api_key"}
			case fleet.OutputElasticsearch, fleet.OutputLogstash:
			}
			return nil
		},
		secrets: []string{"ssl.key", "password", "service_token"},
		check: func(ctx context.Context, s *Service, old, v *fleet.Output, _ Fields) error {
			if old != nil && (old.Default && !v.Default || old.DefaultMonitoring && !v.DefaultMonitoring) {
				return fleet.Errorf(fleet.Invalid, "Default output %s cannot be set to is_default=false or is_default_monitoring=false manually. Make another output the default first.", v.ID)
			}
			if err := checkOutput(v); err != nil {
				return err
			}
			completeOutput(v)
			return s.checkProxy(ctx, v.ProxyID)
		},
		keep: func(v *fleet.Output) error {
			switch {
			case v.Default:
				return fleet.Errorf(fleet.Invalid, "Default output %s cannot be deleted.", v.ID)
			case v.DefaultMonitoring:
				return fleet.Errorf(fleet.Invalid, "Default monitoring output %s cannot be deleted.", v.ID)
			}
			return nil
		},
		uses: usesOutput,
		drop: func(p *fleet.Policy, id string) bool {
			data, monitoring := clearID(&p.DataOutputID, id), clearID(&p.MonitoringOutputID, id)
			return data || monitoring
		},
		unset: func(v, other *fleet.Output) bool {
			data, monitoring := clearFlag(&v.Default, other.Default), clearFlag(&v.DefaultMonitoring, other.DefaultMonitoring)
			return data || monitoring
		},
	}}
}

func usesOutput(p fleet.Policy, v *fleet.Output) bool {
	return p.DataOutputID == v.ID || p.MonitoringOutputID == v.ID || v.Default && (p.DataOutputID == "" || p.MonitoringOutputID == "") || v.DefaultMonitoring && p.MonitoringOutputID == ""
}

func checkOutput(v *fleet.Output) error {
	if err := checkCount("body.hosts", len(v.Hosts)); err != nil {
		return err
	}
	oneOf := func(field, value string, allowed ...string) error {
		if value == "" || slices.Contains(allowed, value) {
			return nil
		}
		return fleet.FieldError("body."+field, "is %q, want one of %s", value, strings.Join(allowed, ", "))
	}
	for _, err := range []error{
		oneOf("type", string(v.Type), "elasticsearch", "remote_elasticsearch", "logstash", "kafka"),
		oneOf("preset", v.Preset, "balanced", "custom", "throughput", "scale", "latency"),
		oneOf("compression", v.Compression, "gzip", "snappy", "lz4", "none"),
		oneOf("auth_type", v.AuthType, "none", "user_pass", "ssl", "kerberos"),
		oneOf("connection_type", v.ConnectionType, "plaintext", "encryption"),
		oneOf("partition", v.Partition, "random", "round_robin", "hash"),
	} {
		if err != nil {
			return err
		}
	}
	if v.SSL != nil {
		if err := oneOf("ssl.verification_mode", v.SSL.VerificationMode, "full", "none", "certificate", "strict"); err != nil {
			return err
		}
	}
	if v.SASL != nil {
		if err := oneOf("sasl.mechanism", v.SASL.Mechanism, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"); err != nil {
			return err
		}
	}
	var config map[string]any
	if err := yamltext.Unmarshal([]byte(v.ConfigYAML), &config); err != nil {
		return fleet.FieldError("body.config_yaml", "is not YAML with a map: %s", err)
	}
	switch v.Type {
	case fleet.OutputElasticsearch, fleet.OutputRemoteElasticsearch:
		if v.Preset == "balanced" && reserved(config) {
			return fleet.Errorf(fleet.Invalid, "preset cannot be balanced when config_yaml contains one of %s", strings.Join(reservedKeys, ", "))
		}
		return normalize("body.hosts", v.Hosts)
	case fleet.OutputLogstash:
		for _, h := range v.Hosts {
			if strings.Contains(h, "://") {
				return fleet.FieldError("body.hosts", "Host address must begin with a domain name or IP address")
			}
			if u, err := url.Parse("http://" + h); err != nil || !strings.EqualFold(u.Host, h) || h == "" {
				return fleet.FieldError("body.hosts", "Invalid Logstash host")
			}
		}
	case fleet.OutputKafka:
		if v.AuthType == "" {
			return fleet.FieldError("body.auth_type", "expected value of type [string] but got [undefined]")
		}
		if v.AuthType == "user_pass" && v.Username == "" {
			return fleet.FieldError("body.username", "expected value of type [string] but got [null]")
		}
		for _, h := range v.Hosts {
			host, port, err := net.SplitHostPort(h)
			if err != nil || host == "" || strings.Contains(host, "://") {
				return fleet.FieldError("body.hosts", `Invalid format. Expected "host:port" without protocol`)
			}
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				return fleet.FieldError("body.hosts", "Invalid port number. Expected a number between 1 and 65535")
			}
		}
		if v.RequiredAcks != nil && !slices.Contains([]int{-1, 0, 1}, *v.RequiredAcks) {
			return fleet.FieldError("body.required_acks", "is %d, want 1, 0 or -1", *v.RequiredAcks)
		}
	}
	return nil
}

// completeOutput sets what Kibana sets if it is absent, and removes what the type of the
// output or of its authentication has no use for.
func completeOutput(v *fleet.Output) {
	var config map[string]any
	_ = yamltext.Unmarshal([]byte(v.ConfigYAML), &config) // checkOutput has checked it
	if shipper, _ := config["shipper"].(map[string]any); shipper == nil || shipper["enabled"] == false {
		v.Shipper = nil
	}
	switch v.Type {
	case fleet.OutputElasticsearch, fleet.OutputRemoteElasticsearch:
		if v.Preset == "" {
			v.Preset = "balanced"
			if reserved(config) {
				v.Preset = "custom"
			}
		}
		return
	case fleet.OutputLogstash:
		return
	case fleet.OutputKafka:
	}
	text := func(at *string, value string) {
		if *at == "" {
			*at = value
		}
	}
	number := func(at **float64, value float64) {
		if *at == nil || **at == 0 {
			*at = &value
		}
	}
	text(&v.Version, "1.0.0")
	text(&v.Compression, "gzip")
	if v.Compression == "gzip" {
		number(&v.CompressionLevel, 4)
	} else {
		v.CompressionLevel = nil
	}
	text(&v.ClientID, "Elastic")
	text(&v.Partition, "hash")
	events := func(at **fleet.OutputEvents) {
		if *at == nil {
			*at = &fleet.OutputEvents{}
		}
		number(&(*at).GroupEvents, 1)
	}
	switch v.Partition {
	case "random":
		events(&v.Random)
	case "round_robin":
		events(&v.RoundRobin)
	}
	number(&v.Timeout, 30)
	number(&v.BrokerTimeout, 10)
	if v.RequiredAcks == nil {
		v.RequiredAcks = new(1)
	}
	if v.AuthType != "none" {
		v.ConnectionType = ""
	}
	if v.AuthType != "user_pass" {
		v.Username, v.Password = "", ""
	}
	if v.Username != "" && v.Password != "" && (v.SASL == nil || v.SASL.Mechanism == "") {
		v.SASL = &fleet.OutputSASL{Mechanism: "PLAIN"}
	}
	v.ProxyID = "" // Kafka knows no proxies
}

// reservedKeys are the settings of a performance preset.
var reservedKeys = []string{
	"bulk_max_size", "compression_level", "connection_idle_timeout", "queue.mem.events", "queue.mem.flush.min_events", "queue.mem.flush.timeout", "worker",
}

// reserved reports whether a configuration has a setting of a preset, nested or with dots.
func reserved(config map[string]any) bool {
	var visit func(at string, v map[string]any) bool
	visit = func(at string, v map[string]any) bool {
		for name, value := range v {
			path := strings.TrimPrefix(at+"."+name, ".")
			if slices.Contains(reservedKeys, path) {
				return true
			}
			if m, ok := value.(map[string]any); ok && visit(path, m) {
				return true
			}
		}
		return false
	}
	return visit("", config)
}

// keepDefault returns an error if a request clears the default flag of the built-in object: it
// is the default as long as no other is.
func keepDefault(wasDefault, isDefault bool, given Fields, noun, id string) error {
	if wasDefault && !isDefault && string(given["is_default"]) == "false" {
		return fleet.Errorf(fleet.Invalid, "%s %s is the default as long as no other is: make another the default first.", noun, id)
	}
	return nil
}

func clearID(at *string, id string) bool {
	if *at != id {
		return false
	}
	*at = ""
	return true
}

func clearFlag(at *bool, taken bool) bool {
	if !taken || !*at {
		return false
	}
	*at = false
	return true
}

// checkCount refuses too few or too many addresses.
func checkCount(field string, n int) error {
	switch {
	case n < 1:
		return fleet.FieldError(field, "array size is [0], but cannot be smaller than [1]")
	case n > maxHosts:
		return fleet.FieldError(field, "array size is [%d], but cannot be greater than [%d]", n, maxHosts)
	}
	return nil
}

func checkURI(field, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return fleet.FieldError(field, "value must be a valid URI (see RFC 3986).")
	case u.Scheme != "http" && u.Scheme != "https":
		return fleet.FieldError(field, "expected URI with scheme [http|https].")
	}
	return nil
}

// normalize adds the port to each URL that has none: agents would take another than the
// scheme's.
func normalize(field string, urls []string) error {
	if err := checkCount(field, len(urls)); err != nil {
		return err
	}
	for i, text := range urls {
		if err := checkURI(field, text); err != nil {
			return err
		}
		u, _ := url.Parse(text) // checked
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		path := u.EscapedPath()
		if path == "/" {
			path = ""
		}
		urls[i] = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port) + path
	}
	return nil
}

package policy_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
)

// agentPolicy is what tests read of a rendered policy.
type agentPolicy struct {
	ID       string
	Revision int64
	Agent    struct {
		Download struct {
			SourceURI string
			SSL       struct {
				Authorities []string `json:"certificate_authorities"`
				Key         string
			}
			ProxyURL string `json:"proxy_url"`
			Timeout  string
		}
		Monitoring map[string]any
		Features   map[string]any
		Protection map[string]any
		Logging    map[string]any
	}
	Inputs            []any
	Outputs           map[string]map[string]any
	OutputPermissions map[string]any `json:"output_permissions"`
	Fleet             struct {
		Hosts []string
		SSL   map[string]any
	}
	SecretPaths []string `json:"secret_paths"`
	Signed      map[string]string
}

func render(t *testing.T, s *policy.Service, id string) agentPolicy {
	t.Helper()
	r, err := s.Render(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var got agentPolicy
	if err := json.Unmarshal(r.Body, &got); err != nil {
		t.Fatalf("%v in %s", err, r.Body)
	}
	if r.ID != id || got.ID != id || r.Revision != got.Revision || got.Revision == 0 {
		t.Errorf("rendered %s revision %d, the body has %s revision %d", r.ID, r.Revision, got.ID, got.Revision)
	}
	return got
}

func renderingService(t *testing.T) *policy.Service {
	t.Helper()
	s := newService(t)
	s.Objects.Server = infra.Server{AgentsURL: "https://fleet.example.com:8220", CA: "-----BEGIN CERTIFICATE-----\n"}
	s.Objects.Tokens = infra.NewUninstallTokens([]byte("key"))
	return s
}

func stored(t *testing.T, s *policy.Service, p fleet.Policy) {
	t.Helper()
	p.Namespace, p.PolicyRev = "default", 3
	if err := s.Store.Policies().Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// An Elastic Agent without outputs, and without monitoring, needs no Elasticsearch.
func TestAgentWithoutOutputsIsSentToThisServer(t *testing.T) {
	s := renderingService(t)
	stored(t, s, fleet.Policy{ID: "web", MonitoringEnabled: []string{"logs"}})
	got := render(t, s, "web")
	if len(got.Inputs) != 0 || got.Inputs == nil || got.Outputs != nil {
		t.Errorf("inputs are %v and outputs %v, want empty inputs and no outputs", got.Inputs, got.Outputs)
	}
	if m := got.Agent.Monitoring; m["enabled"] != false || m["use_output"] != nil {
		t.Errorf("monitoring is %v, want it disabled: there is no output", m)
	}
	if d := got.Agent.Download; d.SourceURI != "https://fleet.example.com:8220/artifacts/" || len(d.SSL.Authorities) != 1 || !strings.HasPrefix(d.SSL.Authorities[0], "-----BEGIN") {
		t.Errorf("the agent downloads from %+v", d)
	}
	if !reflect.DeepEqual(got.Fleet.Hosts, []string{"https://fleet.example.com:8220"}) {
		t.Errorf("the agent checks in at %v", got.Fleet.Hosts)
	}
	if p := got.Agent.Protection; p["enabled"] != false || p["uninstall_token_hash"] != s.Objects.Tokens.Hash("web") || p["signing_key"] != "" {
		t.Errorf("protection is %v", p)
	}
}

// Elastic Agents from 8.18.4 on fail with an empty object in either place.
func TestPolicyHasNoEmptyObjectWhereElasticAgentsFailWithIt(t *testing.T) {
	for what, c := range map[string]struct {
		overrides string
		want      map[string]string
	}{
		"without overrides":          {"", map[string]string{"inputs": "[]", "outputs": ""}},
		"empty objects":              {`{"inputs":{},"outputs":{}}`, map[string]string{"inputs": "", "outputs": ""}},
		"null":                       {`{"inputs":null,"outputs":null}`, map[string]string{"inputs": "", "outputs": ""}},
		"an output of the overrides": {`{"outputs":{"x":{}}}`, map[string]string{"inputs": "[]", "outputs": `{"x":{}}`}},
	} {
		t.Run(what, func(t *testing.T) {
			s := renderingService(t)
			stored(t, s, fleet.Policy{ID: "web", Overrides: json.RawMessage(c.overrides)})
			r, err := s.Render(t.Context(), "web")
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]json.RawMessage
			if err := json.Unmarshal(r.Body, &got); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if string(got[name]) != want {
					t.Errorf("%s is %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

// An address that was made from the machine's name would take agents from a load balancer.
func TestAgentsAreNotSentToGuessedAddress(t *testing.T) {
	s := renderingService(t)
	s.Objects.Server.Guessed = true
	stored(t, s, fleet.Policy{ID: "web"})
	if got := render(t, s, "web"); got.Fleet.Hosts != nil {
		t.Errorf("the agent checks in at %v, want that it stays where it is", got.Fleet.Hosts)
	}
	balancer := fleet.FleetServerHost{ID: infra.DefaultHostID, Name: "Default", HostURLs: []string{"https://lb.example.com:8220"}, Default: true}
	if err := s.Store.FleetServerHosts().Create(t.Context(), balancer); err != nil {
		t.Fatal(err)
	}
	if got := render(t, s, "web"); !slices.Equal(got.Fleet.Hosts, balancer.HostURLs) {
		t.Errorf("the agent checks in at %v, want the stored %v", got.Fleet.Hosts, balancer.HostURLs)
	}
}

func TestPolicyIsRenderedFromObjectsItNames(t *testing.T) {
	s := renderingService(t)
	ctx := t.Context()
	for _, err := range []error{
		s.Store.FleetServerHosts().Create(ctx, fleet.FleetServerHost{ID: "dmz", HostURLs: []string{"https://dmz:8220"}, SSL: &fleet.HostSSL{AgentCertificate: "c", AgentKey: "k", Key: "its own"}}),
		s.Store.DownloadSources().Create(ctx, fleet.DownloadSource{ID: "mirror", Host: "https://mirror/", ProxyID: "proxy", SSL: &fleet.ClientSSL{CertificateAuthorities: []string{"a"}, Key: "k"}}),
		s.Store.FleetProxies().Create(ctx, fleet.FleetProxy{ID: "proxy", URL: "http://proxy:3128", CertificateAuthorities: "b"}),
		s.Store.Outputs().Create(ctx, fleet.Output{ID: "es", Type: fleet.OutputElasticsearch, Hosts: []string{"https://es:9200"}, Default: true, DefaultMonitoring: true, Preset: "balanced", ConfigYAML: "bulk_max_size: 50\nssl:\n  verification_mode: none\n", SSL: &fleet.ClientSSL{Certificate: "c"}}),
		s.Store.Outputs().Create(ctx, fleet.Output{ID: "kafka", Type: fleet.OutputKafka, Hosts: []string{"k:9092"}, Username: "u", Password: "p", Partition: "round_robin", Compression: "none", CompressionLevel: new(4.0)}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stored(t, s, fleet.Policy{
		ID: "web", FleetServerHostID: "dmz", DownloadSourceID: "mirror", DataOutputID: "kafka", MonitoringEnabled: []string{"metrics"}, Protected: true,
		AgentFeatures:    []fleet.AgentFeature{{Name: "fqdn", Enabled: true}},
		AdvancedSettings: json.RawMessage(`{"agent_logging_level":"debug","agent_download_timeout":"10m","agent_limits_go_max_procs":null}`),
		Overrides:        json.RawMessage(`{"agent":{"features":{"x":{"enabled":false}}},"inputs":[{"id":"i"}],"fleet":{"hosts":["https://more:8220"]}}`),
	})
	got := render(t, s, "web")
	if !reflect.DeepEqual(got.Fleet.Hosts, []string{"https://dmz:8220", "https://more:8220"}) || got.Fleet.SSL["key"] != "k" || got.Fleet.SSL["certificate"] != "c" {
		t.Errorf("fleet is %+v", got.Fleet)
	}
	if d := got.Agent.Download; d.SourceURI != "https://mirror/" || d.ProxyURL != "http://proxy:3128" || !reflect.DeepEqual(d.SSL.Authorities, []string{"a", "b"}) || d.SSL.Key != "k" || d.Timeout != "10m" {
		t.Errorf("download is %+v", d)
	}
	es, kafka := got.Outputs["default"], got.Outputs["kafka"]
	if es["type"] != "elasticsearch" || es["bulk_max_size"] != 50.0 || es["preset"] != "balanced" || !reflect.DeepEqual(es["ssl"], map[string]any{"certificate": "c", "verification_mode": "none"}) {
		t.Errorf("the output for monitoring is %v", es)
	}
	if kafka["password"] != "p" || !reflect.DeepEqual(kafka["partition"], map[string]any{"round_robin": map[string]any{"group_events": 1.0}}) || kafka["compression_level"] != nil {
		t.Errorf("the output for data is %v", kafka)
	}
	if len(got.OutputPermissions) != 1 || got.OutputPermissions["default"] == nil {
		t.Errorf("permissions are %v, want those of Elasticsearch only", got.OutputPermissions)
	}
	if m := got.Agent.Monitoring; m["enabled"] != true || m["metrics"] != true || m["logs"] != false || m["use_output"] != "default" || m["namespace"] != "default" {
		t.Errorf("monitoring is %v", m)
	}
	if len(got.Agent.Features) != 2 || got.Agent.Logging["level"] != "debug" || len(got.Inputs) != 1 || got.Agent.Protection["enabled"] != true {
		t.Errorf("features are %v, logging %v, inputs %v", got.Agent.Features, got.Agent.Logging, got.Inputs)
	}
	if want := []string{"agent.download.ssl.key", "fleet.ssl.key", "outputs.kafka.password"}; !reflect.DeepEqual(got.SecretPaths, want) {
		t.Errorf("secret paths are %v, want %v", got.SecretPaths, want)
	}
}

func TestPolicyOfDeletedObjectUsesDefaults(t *testing.T) {
	s := renderingService(t)
	if err := s.Store.FleetServerHosts().Create(t.Context(), fleet.FleetServerHost{ID: "new", HostURLs: []string{"https://new:8220"}, Default: true}); err != nil {
		t.Fatal(err)
	}
	stored(t, s, fleet.Policy{ID: "web", FleetServerHostID: "gone", DownloadSourceID: "gone", DataOutputID: "gone"})
	got := render(t, s, "web")
	if !reflect.DeepEqual(got.Fleet.Hosts, []string{"https://new:8220"}) || !strings.HasPrefix(got.Agent.Download.SourceURI, "https://fleet.example.com") {
		t.Errorf("hosts are %v, source is %s", got.Fleet.Hosts, got.Agent.Download.SourceURI)
	}
}

func TestRenderUnknownPolicy(t *testing.T) {
	if _, err := renderingService(t).Render(t.Context(), "nobody"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("error is %v", err)
	}
}

func TestPolicyWithoutComponentsHasNoKeyForThem(t *testing.T) {
	s := renderingService(t)
	stored(t, s, fleet.Policy{ID: "web"})
	r, err := s.Render(t.Context(), "web")
	if err != nil || strings.Contains(string(r.Body), `"components"`) {
		t.Errorf("the policy is %s, %v", r.Body, err)
	}
}

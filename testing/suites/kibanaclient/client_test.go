package kibanaclient

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/elastic/elastic-agent-libs/kibana"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// TestEveryCallOfTheClient goes through an operator's work with one host: a policy and a key
// for it, where its agents connect and download, another policy for the host, an upgrade,
// and the end.
func TestEveryCallOfTheClient(t *testing.T) {
	world := shared(t)
	for name, set := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := world.config()
			set(world, &c)
			client, err := kibana.NewClientWithConfig(&c, "scenario", "1.0.0", "", "")
			if err != nil {
				t.Fatal(err)
			}
			host := world.Hosts[slices.IndexFunc(world.Hosts, func(h *harness.Host) bool { return h.Name == name })]
			(&scenario{T: t, Client: client, server: world.Server, name: name, host: host}).run()
		})
	}
}

// scenario is what one client does with its host.
type scenario struct {
	*testing.T
	*kibana.Client
	server *harness.Server
	name   string
	host   *harness.Host
}

func (s *scenario) run() {
	if serverless, err := s.KibanaIsServerless(); err != nil || serverless {
		s.Errorf("serverless: %t, %v", serverless, err)
	}
	policy := s.policy()
	s.key(policy)
	s.infrastructure(policy)
	s.agent(policy)
	s.Log("the host is unenrolled, so its policy can be deleted")
	s.must(s.DeletePolicy(s.Context(), policy.ID))
	_, err := s.GetPolicy(s.Context(), policy.ID)
	s.refused(err, "not found")
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// refused checks that a call failed with the server's message: the client takes a refusal
// without one for success.
func (s *scenario) refused(err error, says string) {
	s.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		s.Errorf("the answer is %v, want a refusal with %q", err, says)
	}
}

func (s *scenario) policy() kibana.PolicyResponse {
	created, err := s.CreatePolicy(s.Context(), kibana.AgentPolicy{
		Name: "policy of " + s.name, Namespace: "default", Description: "original",
		MonitoringEnabled: []kibana.MonitoringEnabledOption{kibana.MonitoringEnabledLogs},
		UnenrollTimeout:   3600, InactivityTImeout: 7200,
		AgentFeatures:    []map[string]any{{"name": "fqdn", "enabled": true}},
		AdvancedSettings: map[string]any{"agent_limits_go_max_procs": float64(2)},
	})
	s.must(err)
	got, err := s.GetPolicy(s.Context(), created.ID)
	s.must(err)
	if got.Description != "original" || got.UnenrollTimeout != 3600 || got.InactivityTImeout != 7200 ||
		len(got.AgentFeatures) != 1 || got.AdvancedSettings["agent_limits_go_max_procs"] != float64(2) {
		s.Errorf("the policy is %+v", got)
	}
	updated, err := s.UpdatePolicy(s.Context(), created.ID, kibana.AgentPolicyUpdateRequest{
		Name: got.Name, Namespace: got.Namespace, Description: "changed", IsProtected: kibana.TRUE,
	})
	s.must(err)
	if updated.Description != "changed" || !updated.IsProtected || updated.Revision != got.Revision+1 || updated.UnenrollTimeout != 3600 {
		s.Errorf("the changed policy is %+v", updated)
	}
	_, err = s.CreatePolicy(s.Context(), kibana.AgentPolicy{Name: got.Name, Namespace: "default"})
	s.refused(err, "already exists")
	return updated
}

func (s *scenario) key(policy kibana.PolicyResponse) {
	key, err := s.CreateEnrollmentAPIKey(s.Context(), kibana.CreateEnrollmentAPIKeyRequest{PolicyID: policy.ID})
	s.must(err)
	if !key.Active || key.APIKey == "" || key.PolicyID != policy.ID || key.Name == "" {
		s.Errorf("the key is %+v", key)
	}
}

func (s *scenario) infrastructure(policy kibana.PolicyResponse) {
	hosts, err := s.ListFleetServerHosts(s.Context(), kibana.ListFleetServerHostsRequest{})
	s.must(err)
	if !slices.ContainsFunc(hosts.Items, func(h kibana.FleetServerHost) bool {
		return h.IsDefault && slices.Contains(h.HostURLs, s.server.Info.AgentURL)
	}) {
		s.Errorf("no default host has the agents' URL: %+v", hosts.Items)
	}
	host, err := s.CreateFleetServerHosts(s.Context(), kibana.ListFleetServerHostsRequest{
		ID: "host-" + s.name, Name: "host of " + s.name, HostURLs: []string{"https://fleet.example:8220"},
	})
	s.must(err)
	one, err := s.GetFleetServerHost(s.Context(), kibana.GetFleetServerHostRequest{ID: host.Item.ID})
	s.must(err)
	if one.Name != "host of "+s.name || !slices.Equal(one.HostURLs, []string{"https://fleet.example:8220"}) {
		s.Errorf("the host is %+v", one)
	}

	proxy, err := s.CreateFleetProxy(s.Context(), kibana.ProxiesRequest{
		ID: "proxy-" + s.name, Name: "proxy of " + s.name, URL: "https://proxy.example:3128", ProxyHeaders: map[string]string{"X-Site": "berlin"},
	})
	s.must(err)
	if proxy.Item.ProxyHeaders["X-Site"] != "berlin" {
		s.Errorf("the proxy is %+v", proxy.Item)
	}
	source, err := s.CreateDownloadSource(s.Context(), kibana.DownloadSource{Name: "source of " + s.name, Host: "https://mirror.example/downloads"})
	s.must(err)
	source, err = s.UpdateDownloadSource(s.Context(), source.Item.ID, kibana.DownloadSource{
		Name: source.Item.Name, Host: "https://mirror.example/other", ProxyID: proxy.Item.ID,
	})
	s.must(err)
	if source.Item.Host != "https://mirror.example/other" || source.Item.ProxyID != proxy.Item.ID {
		s.Errorf("the source is %+v", source.Item)
	}

	tokens, err := s.GetPolicyUninstallTokens(s.Context(), policy.ID)
	s.must(err)
	if len(tokens.Items) != 1 || tokens.Items[0].Token == "" || tokens.Items[0].PolicyID != policy.ID {
		s.Errorf("the uninstall tokens are %+v", tokens)
	}

	// Muster has no integrations, and says so.
	_, err = s.InstallFleetPackage(s.Context(), kibana.PackagePolicyRequest{
		Name: "nginx", Namespace: "default", PolicyID: policy.ID, Package: kibana.PackagePolicyRequestPackage{Name: "nginx", Version: "1.0.0"},
	})
	s.refused(err, "integration")
	_, err = s.DeleteFleetPackage(s.Context(), "nginx")
	s.refused(err, "integration")
}

// agent reassigns, upgrades and unenrols the host's agent.
func (s *scenario) agent(policy kibana.PolicyResponse) {
	id := s.host.ID
	list, err := s.ListAgents(s.Context(), kibana.ListAgentsRequest{})
	s.must(err)
	if !slices.ContainsFunc(list.Items, func(a kibana.AgentExisting) bool { return a.ID == id }) {
		s.Errorf("the list lacks %s: %+v", id, list.Items)
	}
	_, err = s.GetAgent(s.Context(), kibana.GetAgentRequest{ID: "nobody"})
	if err == nil || err.Error() != "Agent nobody not found" {
		s.Errorf("an unknown agent: %v", err)
	}

	s.must(s.ReassignAgentToPolicy(s.Context(), id, kibana.AgentPolicyReassignRequest{PolicyID: policy.ID}))
	a := s.wait("has its new policy", func(a adminapi.Agent) bool {
		return a.PolicyId == policy.ID && a.PolicyRevision != nil && *a.PolicyRevision == int64(policy.Revision) && a.Status == fleet.StatusOnline
	})
	if a.Status != "online" || a.LocalMetadata.Host.Hostname != s.name || a.PolicyID != policy.ID {
		s.Errorf("the agent is %+v", a)
	}
	err = s.DeletePolicy(s.Context(), policy.ID)
	s.refused(err, "assigned")
	err = s.AgentPrivilegeLevelChange(s.Context(), id, kibana.AgentPrivilegeLevelChangeRequest{})
	s.refused(err, "privilege")

	_, err = s.UpgradeAgent(s.Context(), kibana.UpgradeAgentRequest{ID: id, Version: "1.1.0"})
	s.must(err)
	a = s.wait("runs 1.1.0", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.1.0" && a.UpgradeDetails == nil && a.Status == fleet.StatusOnline
	})
	if a.Agent.Version != "1.1.0" || a.UpgradeDetails != nil {
		s.Errorf("the upgraded agent is %+v", a)
	}
	_, err = s.UpgradeAgent(s.Context(), kibana.UpgradeAgentRequest{ID: id, Version: "1.1.0"})
	s.refused(err, "1.1.0")

	_, err = s.UnEnrollAgent(s.Context(), kibana.UnEnrollAgentRequest{ID: id})
	s.must(err)
	s.wait("is unenrolled", func(a adminapi.Agent) bool { return a.Status == fleet.StatusUnenrolled })
}

// wait waits until ok returns true for the server's view of the host, and returns the
// client's.
func (s *scenario) wait(what string, ok func(adminapi.Agent) bool) kibana.GetAgentResponse {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), harness.WaitLimit)
	defer cancel()
	_, err := s.server.Wait(ctx, s.host.ID, s.name+" "+what, ok)
	s.must(err)
	a, err := s.GetAgent(s.Context(), kibana.GetAgentRequest{ID: s.host.ID})
	s.must(err)
	return a
}

package admin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// routeSetup adds what clients of Kibana ask before they begin: whether Fleet is set up,
// what it has, and what they may do.
func (h *Handlers) routeSetup(on bind) {
	on(adminapi.GetSetup.Call, h.setup)
	on(adminapi.Setup.Call, h.setup)
	on(adminapi.GetAgentsSetup.Call, h.agentsSetup)
	on(adminapi.SetupAgents.Call, h.setup)
	on(adminapi.GetSettings.Call, h.getSettings)
	on(adminapi.UpdateSettings.Call, h.putSettings)
	on(adminapi.GetPermissions.Call, h.checkPermissions)
	on(adminapi.ListIntegrations.Call, h.listIntegrations)
	on(adminapi.ListInstalledIntegrations.Call, h.listInstalledIntegrations)
	on(adminapi.ListLimitedIntegrations.Call, h.listIntegrations)
	on(adminapi.ListIntegrationCategories.Call, h.listIntegrations)
	on(adminapi.GetAgentData.Call, h.agentData)
	on(adminapi.GetOutputHealth.Call, h.outputHealth)
	on(adminapi.ListPackagePolicies.Call, h.listPackagePolicies)
	on(adminapi.ListUninstallTokens.Call, h.listUninstallTokens)
	on(adminapi.GetUninstallToken.Call, h.getUninstallToken)
}

// absent says what Muster has instead of a part of Kibana's Fleet, by the first segment of
// the path below /api/fleet.
var absent = map[string]string{
	"epm":                        "Muster has no integrations: it upgrades agents, and packages of agents are published with `muster package push`",
	"package_policies":           "Muster has no integrations, so policies have no package policies: create agent policies at /api/fleet/agent_policies",
	"agentless_policies":         "Muster has no integrations, so it has no agentless policies",
	"service_tokens":             "Muster needs no service tokens: agents check in with Muster itself, which is the Fleet Server. Hosts enrol with an enrollment token, see /api/fleet/enrollment_api_keys",
	"service-tokens":             "Muster needs no service tokens: agents check in with Muster itself, which is the Fleet Server. Hosts enrol with an enrollment token, see /api/fleet/enrollment_api_keys",
	"logstash_api_keys":          "Muster makes no keys for Elasticsearch or Logstash: put the credentials into config_yaml of the output",
	"health_check":               "Muster opens no connection to an address that it is given: ask GET /api/status of the Fleet Server itself, on the port of the agents",
	"kubernetes":                 "Muster renders no manifests for Kubernetes: enrol agents with an enrollment token, see /api/fleet/enrollment_api_keys",
	"message_signing_service":    "Muster signs no messages to agents: packages are signed by their publishers",
	"space_settings":             "Muster has one space, default, without settings of its own",
	"data_streams":               "Muster keeps no data of agents: see the outputs' own systems",
	"cloud_connectors":           "Muster has no integrations, so it has no cloud connectors",
	"remote_synced_integrations": "Muster has no integrations to synchronise",
}

// insteadOf says what Muster has instead of a path of Kibana's Fleet, "" if it has that
// part.
func insteadOf(path string) string {
	rest, ok := strings.CutPrefix(path, "/api/fleet/")
	if !ok {
		return ""
	}
	part, _, _ := strings.Cut(rest, "/")
	return absent[part]
}

// nothingAt is the error for a path that is not served.
func nothingAt(r *http.Request) error {
	switch instead := insteadOf(r.URL.Path); {
	case instead != "":
		return fleet.Errorf(fleet.NotFound, "%s", instead)
	case strings.HasPrefix(r.URL.Path, "/api/fleet/"):
		return fleet.Errorf(fleet.NotFound, "there is nothing at %s %s: /api/openapi.yaml lists what Muster has of Kibana's Fleet", r.Method, r.URL.Path)
	}
	return fleet.Errorf(fleet.NotFound, "there is nothing at %s %s", r.Method, r.URL.Path)
}

// setup has nothing to do: a server that answers has its store and its default policy.
func (h *Handlers) setup(c *gin.Context) error {
	return send(c, adminapi.FleetSetup{IsInitialized: true, NonFatalErrors: []map[string]any{}}, onlyQuery(c))
}

func (h *Handlers) agentsSetup(c *gin.Context) error {
	missing := []string{}
	if h.Infra.Tokens == nil {
		missing = append(missing, "encrypted_saved_object_encryption_key_required")
	}
	c.JSON(http.StatusOK, adminapi.AgentsSetup{IsReady: true, MissingRequirements: []string{}, MissingOptionalFeatures: missing})
	return nil
}

// fleetSettings are fixed. Secrets are kept with their objects, so Kibana's storage of
// secrets by id is not there.
var fleetSettings = adminapi.FleetSettings{Id: "fleet-default-settings", PreconfiguredFields: []string{}}

func (h *Handlers) getSettings(c *gin.Context) error {
	c.JSON(http.StatusOK, adminapi.FleetSettingsItem{Item: fleetSettings})
	return nil
}

// putSettings accepts values that change nothing, and refuses the others.
func (h *Handlers) putSettings(c *gin.Context) error {
	var req struct {
		HasSeenAddDataNotice *bool     `json:"has_seen_add_data_notice"`
		AdditionalYAMLConfig *string   `json:"additional_yaml_config"`
		KibanaURLs           *[]string `json:"kibana_urls"`
		KibanaCASHA256       *string   `json:"kibana_ca_sha256"`
		Prerelease           *bool     `json:"prerelease_integrations_enabled"`
		DeleteUnenrolled     *struct {
			Enabled       bool `json:"enabled"`
			Preconfigured bool `json:"is_preconfigured"`
		} `json:"delete_unenrolled_agents"`
	}
	if err := onlyQuery(c); err != nil {
		return err
	}
	if err := decode(c, &req); err != nil {
		return err
	}
	var field, why string
	switch {
	case isSet(req.HasSeenAddDataNotice):
		field, why = "has_seen_add_data_notice", "cannot be set: Muster shows no such notice"
	case deref(req.AdditionalYAMLConfig) != "":
		field, why = "additional_yaml_config", "cannot be set: put it into config_yaml of an output"
	case len(deref(req.KibanaURLs)) > 0:
		field, why = "kibana_urls", "cannot be set: agents get the hosts of /api/fleet/fleet_server_hosts"
	case deref(req.KibanaCASHA256) != "":
		field, why = "kibana_ca_sha256", "cannot be set: agents pin the server's CA when they enrol"
	case isSet(req.Prerelease):
		field, why = "prerelease_integrations_enabled", "cannot be set: Muster has no integrations"
	case req.DeleteUnenrolled != nil && req.DeleteUnenrolled.Enabled:
		field, why = "delete_unenrolled_agents", "cannot be enabled: delete agents with DELETE /api/fleet/agents/{id}"
	}
	if field != "" {
		return fleet.FieldError("body."+field, "%s", why)
	}
	c.Set(dryKey, true)
	c.JSON(http.StatusOK, adminapi.FleetSettingsItem{Item: fleetSettings})
	return nil
}

// checkPermissions succeeds: an admin key may do everything.
func (h *Handlers) checkPermissions(c *gin.Context) error {
	if _, err := queryBool(c, "fleetServerSetup"); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.CheckPermissions{Success: true})
	return nil
}

func (h *Handlers) listIntegrations(c *gin.Context) error {
	c.JSON(http.StatusOK, adminapi.IntegrationList{Items: []map[string]any{}})
	return nil
}

func (h *Handlers) listInstalledIntegrations(c *gin.Context) error {
	c.JSON(http.StatusOK, adminapi.InstalledIntegrationList{Items: []map[string]any{}})
	return nil
}

// agentData answers for each agent that no data has arrived, which goes to outputs.
func (h *Handlers) agentData(c *gin.Context) error {
	ids := strings.FieldsFunc(strings.Join(c.QueryArray("agentsIds"), ","), func(r rune) bool { return r == ',' })
	switch n := len(ids); {
	case n == 0:
		return fleet.FieldError("query.agentsIds", "is missing: name the agents")
	case n > maxAgentsIDs:
		return fleet.FieldError("query.agentsIds", "array size is [%d], but cannot be greater than [%d]", n, maxAgentsIDs)
	}
	if _, err := queryBool(c, "previewData"); err != nil {
		return err
	}
	items := each(ids, func(id string) map[string]any { return map[string]any{id: map[string]bool{"data": false}} })
	c.JSON(http.StatusOK, adminapi.AgentData{Items: items, DataPreview: []map[string]any{}})
	return nil
}

// maxAgentsIDs bounds the agents of one agentData: Kibana's clients ask for the few that they wait for.
const maxAgentsIDs = 1000

// outputHealth answers as Kibana does of an output of which no agent has reported.
func (h *Handlers) outputHealth(c *gin.Context) error {
	if _, err := h.Infra.EditOutputs().Get(c.Request.Context(), c.Param("outputId")); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.OutputHealth{State: "UNKNOWN"})
	return nil
}

func (h *Handlers) listPackagePolicies(c *gin.Context) error {
	number, size, err := page(c, 1)
	return send(c, adminapi.PackagePolicyList{Items: []map[string]any{}, Page: number, PerPage: size}, err)
}

// tokenSearch bounds the search terms of uninstall tokens, as in Kibana.
const tokenSearch = 50

func (h *Handlers) listUninstallTokens(c *gin.Context) error {
	for _, name := range []string{"policyId", "search"} {
		if n := len(c.Query(name)); n > tokenSearch {
			return fleet.FieldError("query."+name, "value has length [%d] but it must have a maximum length of [%d].", n, tokenSearch)
		}
	}
	policyID, search := strings.TrimSpace(c.Query("policyId")), strings.TrimSpace(c.Query("search"))
	if policyID != "" && search != "" {
		return fleet.Errorf(fleet.Invalid, "Query parameters `policyId` and `search` cannot be used at the same time.")
	}
	number, size, err := page(c, 1)
	if err != nil {
		return err
	}
	if size < 5 {
		return fleet.FieldError("query.perPage", "Value must be equal to or greater than [5].")
	}
	policies, err := h.tokenPolicies(c)
	if err != nil {
		return err
	}
	policies = slices.DeleteFunc(policies, func(p fleet.Policy) bool {
		return !strings.Contains(p.ID, policyID) || search != "" && !strings.Contains(p.ID, search) && !strings.Contains(strings.ToLower(p.Name), strings.ToLower(search))
	})
	items := each(fleet.Part(policies, (number-1)*size, size), h.uninstallToken)
	c.JSON(http.StatusOK, adminapi.UninstallTokenList{Items: items, Total: len(policies), Page: number, PerPage: size})
	return nil
}

// tokenPolicies returns the policies that have uninstall tokens, newest first.
func (h *Handlers) tokenPolicies(c *gin.Context) ([]fleet.Policy, error) {
	if h.Infra.Tokens == nil {
		return nil, fleet.Errorf(fleet.Unavailable, "this server lacks the installation's encryption key, from which uninstall tokens are derived: copy it from another server's folder trust")
	}
	all, err := h.Policies.List(c.Request.Context(), kql.Everything{})
	return slices.DeleteFunc(all, func(p fleet.Policy) bool { return p.Managed || isSet(p.SupportsAgentless) }), err
}

func (h *Handlers) uninstallToken(p fleet.Policy) adminapi.UninstallToken {
	return adminapi.UninstallToken{Id: h.Infra.Tokens.ID(p.ID), PolicyId: p.ID, PolicyName: p.Name, Namespaces: filled(p.SpaceIDs)}
}

func (h *Handlers) getUninstallToken(c *gin.Context) error {
	policies, err := h.tokenPolicies(c)
	if err != nil {
		return err
	}
	id := c.Param("uninstallTokenId")
	for _, p := range policies {
		if out := h.uninstallToken(p); out.Id == id {
			out.Token = new(h.Infra.Tokens.Token(p.ID))
			c.JSON(http.StatusOK, adminapi.UninstallTokenItem{Item: out})
			return nil
		}
	}
	return fleet.Errorf(fleet.NotFound, "Uninstall Token not found with id %s", id)
}

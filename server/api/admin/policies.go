package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// routePolicies adds the routes of policies.
func (h *Handlers) routePolicies(on bind) {
	on(adminapi.ListPolicies.Call, h.listPolicies)
	on(adminapi.CreatePolicy.Call, h.createPolicy)
	on(adminapi.BulkGetPolicies.Call, h.bulkGetPolicies)
	on(adminapi.DeletePolicy.Call, h.deletePolicy)
	on(adminapi.ListPolicyOutputs.Call, h.listPolicyOutputs)
	on(adminapi.GetPolicy.Call, h.getPolicy)
	on(adminapi.UpdatePolicy.Call, h.updatePolicy)
	on(adminapi.CopyPolicy.Call, h.copyPolicy)
	on(adminapi.GetFullPolicy.Call, h.getFullPolicy)
	on(adminapi.DownloadPolicy.Call, h.downloadPolicy)
	on(adminapi.GetPolicyOutputs.Call, h.getPolicyOutputs)
	on(adminapi.GetAutoUpgradeStatus.Call, h.autoUpgradeStatus)
}

// maxPolicies is how many ids a call may name, as in Kibana.
const maxPolicies = 10_000

// onlyQuery refuses parameters that a call other than GET does not have; checkQuery does so
// for GET. All such calls have the parameter why.
func onlyQuery(c *gin.Context, names ...string) error {
	for name := range c.Request.URL.Query() {
		if name != "why" && !slices.Contains(names, name) {
			return fleet.FieldError("query."+name, "definition for this key is missing")
		}
	}
	return nil
}

// queryFormat checks the parameter format, which is about package policies. There are
// none.
func queryFormat(c *gin.Context) error {
	switch f := c.Query("format"); f {
	case "", "simplified", "legacy":
		return nil
	default:
		return fleet.FieldError("query.format", "is %q, want simplified or legacy", f)
	}
}

// queryOff refuses parameters that ask for what the server does not have.
func queryOff(c *gin.Context, why string, names ...string) error {
	for _, name := range names {
		on, err := queryBool(c, name)
		if err != nil {
			return err
		}
		if on {
			return fleet.FieldError("query."+name, "is true, but %s", why)
		}
	}
	return nil
}

func (h *Handlers) listPolicies(c *gin.Context) error {
	number, size, err := page(c, 1)
	if err != nil {
		return err
	}
	if err := queryFormat(c); err != nil {
		return err
	}
	uncounted, err := uncounted(c)
	if err != nil {
		return err
	}
	query, err := queryFilter(c, fleet.PolicySchema(), h.Now.UTC())
	if err != nil {
		return err
	}
	list, err := h.Policies.List(c.Request.Context(), query)
	if err != nil {
		return err
	}
	if err := sortPolicies(c, list); err != nil {
		return err
	}
	items, err := h.renderPolicies(c.Request.Context(), fleet.Part(list, (number-1)*size, size), !uncounted)
	return send(c, adminapi.PolicyList{Items: items, Total: len(list), Page: number, PerPage: size}, err)
}

// uncounted reads the parameters that say whether agents are counted. Without either they
// are: an answer of 0 would be wrong.
func uncounted(c *gin.Context) (bool, error) {
	for _, name := range []string{"showUpgradeable", "full"} {
		if _, err := queryBool(c, name); err != nil {
			return false, err
		}
	}
	without, err := queryBool(c, "noAgentCount")
	if err != nil {
		return false, err
	}
	with, err := queryBool(c, "withAgentCount")
	if err != nil {
		return false, err
	}
	if with && without {
		return false, fleet.FieldError("query.noAgentCount", "is true, and so is withAgentCount: say one of them")
	}
	return without || c.Query("withAgentCount") == "false", nil
}

// sortPolicies sorts as the request says, and by id where that leaves a choice.
func sortPolicies(c *gin.Context, list []fleet.Policy) error {
	name := cmp.Or(c.Query("sortField"), "updated_at")
	field := fleet.PolicySchema().Field(name)
	if field == nil {
		return fleet.Errorf(fleet.Invalid, "Unknown sort field %s", name)
	}
	sign := -1
	switch order := c.Query("sortOrder"); order {
	case "", "desc":
	case "asc":
		sign = 1
	default:
		return fleet.FieldError("query.sortOrder", "is %q, want asc or desc", order)
	}
	slices.SortFunc(list, func(a, b fleet.Policy) int {
		return cmp.Or(compareFirst(a.Values(field), b.Values(field), sign), strings.Compare(a.ID, b.ID))
	})
	return nil
}

// compareFirst compares the first values of a field of two documents. One without a value
// comes last in either direction.
func compareFirst(a, b []any, sign int) int {
	if len(a) == 0 || len(b) == 0 {
		return cmp.Compare(len(b), len(a))
	}
	switch x := a[0].(type) {
	case string:
		y, _ := b[0].(string)
		return sign * strings.Compare(x, y)
	case float64:
		y, _ := b[0].(float64)
		return sign * cmp.Compare(x, y)
	case time.Time:
		y, _ := b[0].(time.Time)
		return sign * x.Compare(y)
	case bool:
		if y, _ := b[0].(bool); x != y {
			if x {
				return sign
			}
			return -sign
		}
	}
	return 0
}

// renderPolicies returns policies as the API has them. If counted, it counts their agents, in
// one pass.
func (h *Handlers) renderPolicies(ctx context.Context, list []fleet.Policy, counted bool) ([]adminapi.Policy, error) {
	var agents map[string]int
	if counted && len(list) > 0 {
		var err error
		if agents, err = h.Policies.AgentCounts(ctx); err != nil {
			return nil, err
		}
	}
	return each(list, func(p fleet.Policy) adminapi.Policy { return renderPolicy(&p, agents[p.ID]) }), nil
}

func (h *Handlers) answerPolicy(c *gin.Context, p fleet.Policy) error {
	n, err := h.Policies.CountAgents(c.Request.Context(), p.ID)
	return send(c, adminapi.PolicyItem{Item: renderPolicy(&p, n)}, err)
}

func renderPolicy(p *fleet.Policy, agents int) adminapi.Policy {
	monitoring := p.MonitoringEnabled
	if monitoring == nil {
		monitoring = []string{}
	}
	components := each(p.Components, func(c agentapi.PolicyComponent) adminapi.PolicyComponent {
		return adminapi.PolicyComponent{PolicyComponent: c, Variables: p.ComponentVariables[c.Name]}
	})
	return adminapi.Policy{
		Id: p.ID, Name: p.Name, Namespace: p.Namespace, IsProtected: p.Protected, IsManaged: p.Managed, Revision: p.PolicyRev, Status: "active",
		UpdatedAt: p.UpdatedAt, UpdatedBy: p.UpdatedBy, PackagePolicies: []map[string]any{}, Agents: agents,
		PolicySettings: adminapi.PolicySettings{
			Description: ptr(p.Description), SpaceIds: filled(p.SpaceIDs), InactivityTimeout: new(int(p.InactivityTimeout.Seconds())), UnenrollTimeout: p.UnenrollTimeout,
			MonitoringEnabled: &monitoring, KeepMonitoringAlive: p.KeepMonitoringAlive, MonitoringPprofEnabled: p.MonitoringPprof,
			MonitoringHttp: filled(p.MonitoringHTTP), MonitoringDiagnostics: filled(p.MonitoringDiagnostics),
			DataOutputId: ptr(p.DataOutputID), MonitoringOutputId: ptr(p.MonitoringOutputID), DownloadSourceId: ptr(p.DownloadSourceID), FleetServerHostId: ptr(p.FleetServerHostID),
			AgentFeatures: filled(p.AgentFeatures), GlobalDataTags: filled(p.GlobalDataTags), RequiredVersions: filled(p.RequiredVersions), UpgradeWindows: filled(p.UpgradeWindows),
			AdvancedSettings: filled(p.AdvancedSettings), Overrides: filled(p.Overrides), Components: filled(components),
			IsDefault: ptr(p.Default), IsDefaultFleetServer: ptr(p.DefaultFleetServer), HasFleetServer: p.HasFleetServer, SupportsAgentless: p.SupportsAgentless, Agentless: filled(p.Agentless),
		},
	}
}

// filled returns an optional list or JSON value, nil if it is empty.
func filled[S ~[]E, E any](s S) *S {
	if len(s) == 0 {
		return nil
	}
	return &s
}

func (h *Handlers) getPolicy(c *gin.Context) error {
	if err := queryFormat(c); err != nil {
		return err
	}
	p, err := h.Policies.Get(c.Request.Context(), c.Param("policyId"))
	if err != nil {
		return err
	}
	return h.answerPolicy(c, p)
}

// maxPolicyBody bounds a policy: its document is read whenever all policies are listed. The
// largest real ones, with overrides, have some ten kilobytes.
const maxPolicyBody = 128 << 10

// nullable are the fields that null clears. Kibana refuses null for unenroll_timeout, which
// leaves clients no way to clear it.
var nullable = []string{
	"components", "data_output_id", "monitoring_output_id", "download_source_id", "fleet_server_host_id", "keep_monitoring_alive", "overrides",
	"required_versions", "supports_agentless", "unenroll_timeout", "upgrade_windows",
}

// decodePolicy reads a request about a policy into v, and returns its fields.
func decodePolicy(c *gin.Context, v any) (map[string]json.RawMessage, error) {
	body, err := httpapi.ReadBody(c, maxPolicyBody)
	if err != nil {
		return nil, err
	}
	err = httpapi.DecodeStrictJSON(body, v, strict.Options{Null: func(path string) string {
		if strings.ContainsAny(path, ".[") || slices.Contains(nullable, path) {
			return ""
		}
		return "is null: leave it out"
	}})
	if err != nil {
		return nil, err
	}
	// As stores return it: the same values with other spaces are no change.
	var given map[string]json.RawMessage
	return given, httpapi.DecodeStrictJSON(body, &given, strict.Options{})
}

// editPolicy sets the fields of a policy that a request gives; null sets the zero value. It
// returns the names of those that changed.
func editPolicy(p *fleet.Policy, given map[string]json.RawMessage) (changed []string, err error) {
	seconds := fleet.DefaultInactivityTimeout // also of a change that does not give it, as in Kibana
	if raw, ok := given["inactivity_timeout"]; ok {
		var n int64
		if err := json.Unmarshal(raw, &n); err != nil || n < 0 || n > policy.MaxTimeout {
			return nil, fleet.FieldError("body.inactivity_timeout", "is %s, want a number of seconds from 0 to %d", raw, policy.MaxTimeout)
		}
		seconds = time.Duration(n) * time.Second
	}
	if seconds != p.InactivityTimeout {
		p.InactivityTimeout = seconds
		changed = append(changed, "inactivity_timeout")
	}
	fields := map[string]any{
		"name": &p.Name, "namespace": &p.Namespace, "description": &p.Description, "space_ids": &p.SpaceIDs, "unenroll_timeout": &p.UnenrollTimeout,
		"monitoring_enabled": &p.MonitoringEnabled, "keep_monitoring_alive": &p.KeepMonitoringAlive, "monitoring_pprof_enabled": &p.MonitoringPprof,
		"monitoring_http": &p.MonitoringHTTP, "monitoring_diagnostics": &p.MonitoringDiagnostics, "data_output_id": &p.DataOutputID,
		"monitoring_output_id": &p.MonitoringOutputID, "download_source_id": &p.DownloadSourceID, "fleet_server_host_id": &p.FleetServerHostID,
		"agent_features": &p.AgentFeatures, "global_data_tags": &p.GlobalDataTags, "required_versions": &p.RequiredVersions, "upgrade_windows": &p.UpgradeWindows,
		"advanced_settings": &p.AdvancedSettings, "overrides": &p.Overrides, "components": &p.Components, "is_protected": &p.Protected, "is_managed": &p.Managed,
		"is_default": &p.Default, "is_default_fleet_server": &p.DefaultFleetServer, "has_fleet_server": &p.HasFleetServer,
		"supports_agentless": &p.SupportsAgentless, "agentless": &p.Agentless,
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		raw, field := given[name], fields[name]
		if field == nil { // it is no setting, such as force
			continue
		}
		// A new value, so that nothing of the old one is left in it.
		value := reflect.New(reflect.TypeOf(field).Elem())
		if string(raw) != "null" {
			if err := json.Unmarshal(raw, value.Interface()); err != nil {
				return nil, fleet.FieldError("body."+name, "is not valid: %w", err)
			}
		}
		if list, ok := value.Interface().(*[]agentapi.PolicyComponent); ok {
			if *list, err = fleet.KeepInForce("body."+name, p.Components, *list); err != nil {
				return nil, err
			}
		}
		if old := reflect.ValueOf(field).Elem(); !reflect.DeepEqual(old.Interface(), value.Elem().Interface()) {
			old.Set(value.Elem())
			changed = append(changed, name)
		}
	}
	if raw, ok := given["components"]; ok {
		variables, err := componentVariables(raw)
		if err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(p.ComponentVariables, variables) {
			p.ComponentVariables = variables
			changed = append(changed, "components")
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed), nil
}

// componentVariables returns the variables of components. They are apart from what agents get
// of a component.
func componentVariables(raw json.RawMessage) (map[string]map[string]string, error) {
	var list []struct {
		Name      string            `json:"name"`
		Variables map[string]string `json:"variables"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fleet.FieldError("body.components", "is not valid: %w", err)
	}
	var out map[string]map[string]string
	for _, c := range list {
		if len(c.Variables) > 0 {
			if out == nil {
				out = map[string]map[string]string{}
			}
			out[c.Name] = c.Variables
		}
	}
	return out, nil
}

func (h *Handlers) createPolicy(c *gin.Context) error {
	if err := cmp.Or(onlyQuery(c, "sys_monitoring"), queryOff(c, "the server has no packages: leave it out", "sys_monitoring")); err != nil {
		return err
	}
	var req adminapi.PolicyRequest
	given, err := decodePolicy(c, &req)
	if err != nil {
		return err
	}
	p := fleet.Policy{ID: deref(req.Id)}
	if _, err := editPolicy(&p, given); err != nil {
		return err
	}
	if p, err = h.Policies.Create(c.Request.Context(), p, actor(c)); err != nil {
		return err
	}
	return h.answerPolicy(c, p)
}

func (h *Handlers) updatePolicy(c *gin.Context) error {
	if err := cmp.Or(onlyQuery(c, "format", "override_limit"), queryFormat(c)); err != nil {
		return err
	}
	overrideLimit, err := queryBool(c, "override_limit")
	if err != nil {
		return err
	}
	var req adminapi.UpdatePolicyRequest
	given, err := decodePolicy(c, &req)
	if err != nil {
		return err
	}
	id := c.Param("policyId")
	for _, name := range []string{"name", "namespace"} {
		if _, ok := given[name]; !ok {
			return fleet.FieldError("body."+name, "is missing: a change gives name and namespace, too")
		}
	}
	if req.Id != nil && *req.Id != id {
		return fleet.FieldError("body.id", "is %q, but the path says %q: an id cannot be changed", *req.Id, id)
	}
	p, err := h.Policies.Update(c.Request.Context(), id, policy.Change{
		Edit:  func(p *fleet.Policy) ([]string, error) { return editPolicy(p, given) },
		Force: isSet(req.Force), Quiet: req.BumpRevision != nil && !*req.BumpRevision, OverrideLimit: overrideLimit,
	}, actor(c))
	if err != nil {
		return err
	}
	return h.answerPolicy(c, p)
}

func (h *Handlers) copyPolicy(c *gin.Context) error {
	if err := cmp.Or(onlyQuery(c, "format"), queryFormat(c)); err != nil {
		return err
	}
	var req adminapi.CopyPolicyRequest
	if err := httpapi.DecodeStrict(c, maxPolicyBody, &req); err != nil {
		return err
	}
	p, err := h.Policies.Copy(c.Request.Context(), c.Param("policyId"), req.Name, req.Description, actor(c))
	if err != nil {
		return err
	}
	return h.answerPolicy(c, p)
}

func (h *Handlers) deletePolicy(c *gin.Context) error {
	if err := onlyQuery(c); err != nil {
		return err
	}
	var req adminapi.DeletePolicyRequest
	if err := httpapi.DecodeStrict(c, maxPolicyBody, &req); err != nil {
		return err
	}
	if req.AgentPolicyId == "" {
		return fleet.FieldError("body.agentPolicyId", "is missing: give the policy's id")
	}
	p, err := h.Policies.Delete(c.Request.Context(), req.AgentPolicyId, isSet(req.Force), actor(c))
	return send(c, adminapi.DeletedPolicy{Id: p.ID, Name: p.Name}, err)
}

// namedPolicies returns the policies of a list of ids, in its order.
func (h *Handlers) namedPolicies(ctx context.Context, ids []string, ignoreMissing bool) ([]fleet.Policy, error) {
	if len(ids) > maxPolicies {
		return nil, fleet.FieldError("body.ids", "are %d, want at most %d", len(ids), maxPolicies)
	}
	byID, err := h.Policies.ByID(ctx)
	if err != nil {
		return nil, err
	}
	found := []fleet.Policy{}
	for _, id := range ids {
		p, ok := byID[id]
		if !ok && !ignoreMissing {
			return nil, fleet.Errorf(fleet.NotFound, "Agent policy %s not found", id)
		}
		if ok {
			found = append(found, p)
		}
	}
	return found, nil
}

func (h *Handlers) bulkGetPolicies(c *gin.Context) error {
	if err := cmp.Or(onlyQuery(c, "format"), queryFormat(c)); err != nil {
		return err
	}
	var req adminapi.BulkGetPoliciesRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	if len(req.Ids) == 0 {
		return fleet.FieldError("body.ids", "array size is [0], but cannot be smaller than [1]")
	}
	found, err := h.namedPolicies(c.Request.Context(), req.Ids, isSet(req.IgnoreMissing))
	if err != nil {
		return err
	}
	items, err := h.renderPolicies(c.Request.Context(), found, true)
	return send(c, adminapi.PolicyItems{Items: items}, err)
}

func (h *Handlers) listPolicyOutputs(c *gin.Context) error {
	if err := onlyQuery(c); err != nil {
		return err
	}
	var req adminapi.PolicyOutputsRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	found, err := h.namedPolicies(c.Request.Context(), req.Ids, false)
	if err != nil {
		return err
	}
	out := adminapi.PolicyOutputsList{Items: make([]adminapi.PolicyOutputs, len(found))}
	for i, p := range found {
		if out.Items[i], err = h.outputsOf(c.Request.Context(), p); err != nil {
			return err
		}
		out.Items[i].AgentPolicyId = &p.ID
	}
	c.JSON(http.StatusOK, out)
	return nil
}

func (h *Handlers) getPolicyOutputs(c *gin.Context) error {
	p, err := h.Policies.Get(c.Request.Context(), c.Param("policyId"))
	if err != nil {
		return err
	}
	item, err := h.outputsOf(c.Request.Context(), p)
	return send(c, adminapi.PolicyOutputsItem{Item: item}, err)
}

func (h *Handlers) outputsOf(ctx context.Context, p fleet.Policy) (out adminapi.PolicyOutputs, err error) {
	data, monitoring, err := h.Policies.OutputsOf(ctx, p)
	out.Data.Output, out.Data.Integrations = policyOutput(data), []map[string]any{}
	out.Monitoring.Output = policyOutput(monitoring)
	return out, err
}

// policyOutput is empty without an output.
func policyOutput(o *fleet.Output) adminapi.PolicyOutput {
	if o == nil {
		return adminapi.PolicyOutput{}
	}
	return adminapi.PolicyOutput{Id: o.ID, Name: o.Name}
}

// rendered returns the policy of the request as agents get it.
func (h *Handlers) rendered(c *gin.Context) (policy.Rendered, error) {
	err := queryOff(c, "the server has only policies for agents that it manages: leave it out", "standalone", "kubernetes")
	if err != nil {
		return policy.Rendered{}, err
	}
	if _, err := queryBool(c, "download"); err != nil {
		return policy.Rendered{}, err
	}
	return h.Policies.Render(c.Request.Context(), c.Param("policyId"))
}

func (h *Handlers) getFullPolicy(c *gin.Context) error {
	r, err := h.rendered(c)
	return send(c, adminapi.FullPolicyItem{Item: r.Body}, err)
}

func (h *Handlers) downloadPolicy(c *gin.Context) error {
	r, err := h.rendered(c)
	if err != nil {
		return err
	}
	text, err := r.YAML()
	if err != nil {
		return err
	}
	c.Header("Content-Disposition", `attachment; filename="elastic-agent.yml"`)
	c.Data(http.StatusOK, "text/x-yaml", text)
	return nil
}

// autoUpgradeStatus counts the agents of a policy, without the inactive ones, by version.
// An unknown policy has none, as in Kibana.
func (h *Handlers) autoUpgradeStatus(c *gin.Context) error {
	ctx := c.Request.Context()
	found, err := h.Inventory.Find(ctx, inventory.Selection{Policy: c.Param("policyId")})
	if err != nil {
		return err
	}
	counts := map[string]*adminapi.AutoUpgradeVersion{}
	of := func(version string) *adminapi.AutoUpgradeVersion {
		if counts[version] == nil {
			counts[version] = &adminapi.AutoUpgradeVersion{Version: version}
		}
		return counts[version]
	}
	out := adminapi.AutoUpgradeStatus{CurrentVersions: []adminapi.AutoUpgradeVersion{}}
	err = h.Inventory.Each(ctx, found, func(a fleet.Agent) {
		out.TotalAgents++
		if a.Version != "" {
			of(a.Version).Agents++
		}
		switch {
		case a.UpgradeTo == "":
		case a.Upgrading():
			of(a.UpgradeTo).InProgressUpgradeAgents++
		case a.UpgradeStatus == fleet.UpgradeFailed || a.UpgradeStatus == fleet.UpgradeRolledBack:
			of(a.UpgradeTo).FailedUpgradeAgents++
		}
	})
	if err != nil {
		return err
	}
	for _, v := range counts {
		out.CurrentVersions = append(out.CurrentVersions, *v)
	}
	slices.SortFunc(out.CurrentVersions, func(a, b adminapi.AutoUpgradeVersion) int {
		return cmp.Or(cmp.Compare(b.Agents, a.Agents), strings.Compare(a.Version, b.Version))
	})
	c.JSON(http.StatusOK, out)
	return nil
}

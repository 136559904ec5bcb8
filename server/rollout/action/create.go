package action

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Order is an action for some agents. Upgrades, rollbacks and unenrolments have orders of
// their own.
type Order struct {
	Type agentapi.ActionType
	// Data must have what the type needs; see agentapi. Keys that the type does not have
	// are not delivered, as by Fleet Server.
	Data     json.RawMessage `json:"-"` // the action has it
	AgentIDs []string        `json:"-"`
	Selected bool            // as in UpgradeOrder
	Single   bool            // as in UpgradeOrder
	// Force also permits agents of an active rollout to be migrated to another server.
	Force   bool
	Removal // of a MIGRATE
	// StartTime is nil for at once, and Expiration for fleet.DefaultExpiration later.
	StartTime, Expiration *time.Time
	// InputType and Timeout (in seconds) are those of an INPUT_ACTION.
	InputType string
	Timeout   int64
	// Actor is the name of the admin key.
	Actor string
}

// Create creates an action of any type that has no order of its own. Agents that cannot
// follow become error results of it, unless the order is Single.
func (s *Service) Create(ctx context.Context, o Order) (fleet.Action, error) {
	a, err := o.action(s.Now.UTC())
	if err != nil {
		return fleet.Action{}, err
	}
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return fleet.Action{}, err
	}
	if err := o.checkWhy(ctx); err != nil {
		return fleet.Action{}, err
	}
	key := fleet.NewID() // a digest of secrets could be guessed
	if !hasSecrets(&a) {
		var earlier *fleet.Action
		if key, earlier, err = s.ordered(ctx, o.Single, "other", &o, a.Data, o.Actor, o.AgentIDs); err != nil || earlier != nil {
			return deref(earlier), err
		}
	}
	if err := s.seal(&a); err != nil {
		return fleet.Action{}, err
	}
	do, err := o.step(ctx, s, &a, o.AgentIDs)
	if err != nil {
		return fleet.Action{}, err
	}
	if o.Type == agentapi.ActionMigrate {
		if err := s.checkRemoval(ctx, o.Removal, o.AgentIDs, do); err != nil {
			return fleet.Action{}, err
		}
	}
	return s.order(ctx, a, o.AgentIDs, do, key, "other", &o)
}

func (o *Order) step(ctx context.Context, s *Service, a *fleet.Action, _ []string) (step, error) {
	can, err := s.checkOf(ctx, o.Type)
	do := step{
		check: func(a *fleet.Agent) error {
			if err := a.CheckEnrolled(); err != nil {
				return err
			}
			return can(a)
		},
		// Only a migration takes an agent away from its rollout.
		locked: o.Force || o.Type != agentapi.ActionMigrate,
		hint:   "; or migrate it with force",
		single: o.Single,
		why:    o.Why, override: o.overrides(),
	}
	if o.Type == agentapi.ActionRequestDiagnostics {
		do.begin = func(agent *fleet.Agent) {
			agent.RequestDiagnostics(fleet.DiagnosticsRequest{ActionID: a.ID, At: a.CreatedAt, Until: *a.Expiration, By: a.CreatedBy})
		}
		do.begun = func(agent *fleet.Agent) bool { return agent.DiagnosticsRequested(a.ID) }
	}
	return do, err
}

const (
	// minPrivilegeVersion and minMigrateVersion are the first versions of the agent that
	// know the actions, as in Kibana.
	minPrivilegeVersion = "9.3.0"
	minMigrateVersion   = "9.2.0"
)

// ErrUnprivileged is in the error of an agent that has no root privilege already.
var ErrUnprivileged = errors.New("is already unprivileged")

// checkOf returns a function that reports why an agent cannot follow an action of a type.
func (s *Service) checkOf(ctx context.Context, kind agentapi.ActionType) (func(*fleet.Agent) error, error) {
	switch kind {
	case agentapi.ActionRequestDiagnostics:
		return (*fleet.Agent).CheckDiagnostics, nil
	case agentapi.ActionPrivilegeLevelChange:
		return checkPrivilege, nil
	case agentapi.ActionMigrate:
		return s.checkMigrate(ctx)
	}
	return func(*fleet.Agent) error { return nil }, nil
}

func checkPrivilege(a *fleet.Agent) error {
	var reports struct {
		Elastic struct {
			Agent struct {
				Unprivileged bool `json:"unprivileged"`
			} `json:"agent"`
		} `json:"elastic"`
	}
	_ = json.Unmarshal(a.LocalMetadata, &reports) // agents of other makers send what they like
	switch {
	case reports.Elastic.Agent.Unprivileged:
		return &fleet.Error{Kind: fleet.Invalid, Message: "Agent " + a.ID + " is already unprivileged", Err: ErrUnprivileged}
	case olderThan(a, minPrivilegeVersion):
		return fleet.Errorf(fleet.Invalid, "Cannot remove root privilege. Privilege level change is supported from version %s.", minPrivilegeVersion)
	}
	return nil
}

// checkMigrate refuses the agents of protected policies, as Kibana does: their hosts would need
// the uninstall token.
func (s *Service) checkMigrate(ctx context.Context) (func(*fleet.Agent) error, error) {
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	protected := map[string]bool{}
	for _, p := range policies {
		protected[p.ID] = p.Protected
	}
	return func(a *fleet.Agent) error {
		switch {
		case protected[a.PolicyID]:
			return fleet.Errorf(fleet.Forbidden, "Agent is protected and cannot be migrated")
		case olderThan(a, minMigrateVersion):
			return fleet.Errorf(fleet.Invalid, "Agent cannot be migrated. Migrate action is supported from version %s.", minMigrateVersion)
		case !a.Host().Elastic.Agent.Upgradeable:
			return fleet.Errorf(fleet.Invalid, "Containerized agents cannot be migrated")
		}
		return nil
	}, err
}

// olderThan reports whether the agent runs a version below one. It is false if the agent
// reports none.
func olderThan(a *fleet.Agent, version string) bool {
	cmp, err := manifest.CompareVersions(a.Version, version)
	return err == nil && cmp < 0
}

// action returns the action of the order, without its agents.
func (o *Order) action(now time.Time) (fleet.Action, error) {
	a := fleet.Action{
		ID: fleet.NewID(), Type: o.Type, CreatedAt: now, CreatedBy: o.Actor,
		StartTime: o.StartTime, Expiration: o.Expiration,
	}
	if a.Expiration == nil {
		from := now
		if o.StartTime != nil && o.StartTime.After(now) {
			from = *o.StartTime
		}
		expires := from.Add(fleet.DefaultExpiration)
		a.Expiration = &expires
	}
	if !a.Expiration.After(now) {
		return a, fleet.FieldError("body.action.expiration", "is in the past: no agent would receive the action")
	}
	if o.Type == agentapi.ActionInput {
		if o.InputType == "" {
			return a, fleet.FieldError("body.action.input_type", "is missing: an INPUT_ACTION names the input that carries it out")
		}
		if o.Timeout < 0 {
			return a, fleet.FieldError("body.action.timeout", "is below 0")
		}
		a.InputType, a.Timeout = o.InputType, o.Timeout
	}
	var err error
	a.Data, err = checkData(o.Type, o.Data)
	return a, err
}

// checkData checks the data of an action and returns what is delivered of it.
func checkData(kind agentapi.ActionType, data json.RawMessage) (json.RawMessage, error) {
	if string(data) == "null" {
		data = nil
	}
	switch kind {
	case agentapi.ActionPolicyReassign:
		return known(data, func(d *agentapi.PolicyReassignData) error {
			if d.PolicyID == "" {
				return fleet.FieldError("body.action.data.policy_id", "is missing")
			}
			return nil
		})
	case agentapi.ActionSettings:
		return known(data, func(d *agentapi.SettingsData) error {
			switch {
			case d.LogLevel == nil: // the agent returns to the level of its policy
			case *d.LogLevel == "debug", *d.LogLevel == "info", *d.LogLevel == "warning", *d.LogLevel == "error":
			default:
				return fleet.FieldError("body.action.data.log_level", "is %q, want debug, info, warning or error, or null for the policy's", *d.LogLevel)
			}
			return nil
		})
	case agentapi.ActionMigrate:
		return known(data, func(d *agentapi.MigrateData) error {
			switch {
			case d.TargetURI == "":
				return fleet.FieldError("body.action.data.target_uri", "is missing: name the server to migrate to")
			case d.EnrollmentToken == "":
				return fleet.FieldError("body.action.data.enrollment_token", "is missing: create one at the server to migrate to")
			}
			if u, err := url.Parse(d.TargetURI); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
				return fleet.FieldError("body.action.data.target_uri", "is %q, want the URL of a server, such as https://fleet.example.com:8220", d.TargetURI)
			}
			var err error
			d.Settings, err = migrateSettings(d.Settings)
			return err
		})
	case agentapi.ActionPrivilegeLevelChange:
		return known(data, func(d *agentapi.PrivilegeLevelChangeData) error { return nil })
	case agentapi.ActionRequestDiagnostics:
		if len(data) == 0 {
			return nil, nil // agents then send what they send by default
		}
		return known(data, func(d *agentapi.RequestDiagnosticsData) error {
			for _, m := range d.AdditionalMetrics {
				if m != "CPU" && m != "CONN" {
					return fleet.FieldError("body.action.data.additional_metrics", "has %q, want CPU or CONN", m)
				}
			}
			return nil
		})
	case agentapi.ActionInput:
		return data, nil
	case agentapi.ActionUpgrade, agentapi.ActionStage, agentapi.ActionProceed, agentapi.ActionUnenroll, agentapi.ActionForceUnenroll, agentapi.ActionPolicyChange, agentapi.ActionCancel:
		return nil, fleet.FieldError("body.action.type", "is %s, which is not created in this way: it has a call of its own, or the server makes it", kind)
	}
	return nil, fleet.FieldError("body.action.type", "is %q, which no agent knows", kind)
}

// seal encrypts the data of an action that has secrets, all of it: the settings of a MIGRATE
// have keys and headers beside the token.
func (s *Service) seal(a *fleet.Action) error {
	if !hasSecrets(a) {
		return nil
	}
	if a.Sealed = s.Sealer.Seal(a.Owner(), string(a.Data)); a.Sealed == nil {
		return fleet.Errorf(fleet.Unavailable, "a %s has secrets, and this server has no key to store them encrypted: copy the folder trust of a server that has one", a.Type)
	}
	a.Data = nil
	return nil
}

func hasSecrets(a *fleet.Action) bool {
	switch a.Type {
	case agentapi.ActionMigrate:
		return true
	case agentapi.ActionPrivilegeLevelChange:
		var d agentapi.PrivilegeLevelChangeData
		_ = json.Unmarshal(a.Data, &d) // checkData has encoded it
		return d.UserInfo != nil && d.UserInfo.Password != ""
	}
	return false
}

// migrateNames are the settings of a MIGRATE that Elastic Agents read under another name, or as a
// list, than Kibana's API has.
var migrateNames = []struct {
	api, agent string
	list       bool
}{
	{"certificate_authorities", "ca", true},
	{"ca_sha256", "ca_sha256", true}, // the agent refuses the action if it is a text
	{"elastic_agent_cert", "certificate", false},
	{"elastic_agent_cert_key", "key", false},
}

// migrateSettings returns the settings of a MIGRATE with what agents read beside the names of
// Kibana's API.
func migrateSettings(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var settings map[string]any
	if err := json.Unmarshal(raw, &settings); err != nil {
		return nil, fleet.FieldError("body.action.data.settings", "want a JSON object")
	}
	if settings == nil { // null
		return nil, nil
	}
	for _, n := range migrateNames {
		text, ok := settings[n.api].(string)
		if ok && text == "" {
			delete(settings, n.api)
		}
		if _, taken := settings[n.agent]; !ok || text == "" || taken && n.agent != n.api {
			continue
		}
		settings[n.agent] = text
		if n.list {
			list := strings.Split(text, ",") // as on the agent's command line
			for i := range list {
				list[i] = strings.TrimSpace(list[i])
			}
			settings[n.agent] = list
		}
	}
	return event.Data(settings), nil
}

// known decodes data as T, checks it, and returns it without unknown keys.
func known[T any](data json.RawMessage, check func(*T) error) (json.RawMessage, error) {
	if len(data) == 0 {
		return nil, fleet.FieldError("body.action.data", "is missing")
	}
	var d T
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fleet.FieldError("body.action.data", "is not what this type of action carries: %w", err)
	}
	if err := check(&d); err != nil {
		return nil, err
	}
	return event.Data(d), nil
}

package configfile

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Renderer renders the files of rollouts' targets.
type Renderer struct {
	UpgradeManifests UpgradeManifests
	// Packages returns the published packages of a component.
	Packages func(ctx context.Context, component string) (fleet.Catalog, error)
	Actions  Actions
	Now      clock.Clock

	mu       sync.Mutex
	prepared map[planKey]*prepared
}

// UpgradeManifests finds the templates of upgrade manifests.
type UpgradeManifests interface {
	Templates(ctx context.Context, profile, id string) (*Templates, error)
}

// Actions has the actions that were ordered; store.Actions is one.
type Actions interface {
	For(ctx context.Context, id string, agentIDs ...string) ([]fleet.Action, error)
}

// planKey is what decides about the files of a plan. With the hash of the upgrade manifest the
// templates never change.
type planKey struct{ profile, id, hash, version string }

// prepared is what all targets of a plan share.
type prepared struct {
	templates *Templates
	packages  fleet.Catalog // of the version
	at        time.Time     // when packages was read
}

const (
	// maxPrepared bounds the plans in memory. More are seldom active at once, and another one
	// costs only that it is read again.
	maxPrepared = 10
	// packagesAge is how old the packages may be: a preview of a large fleet reads them a few
	// times, and a push is noticed at once.
	packagesAge = time.Second
)

// prepare returns what all targets of a plan share, which is read once for a plan that pins
// the hash of its upgrade manifest. An upgrade manifest that is another one by now is a conflict.
func (r *Renderer) prepare(ctx context.Context, p fleet.Plan) (prepared, error) {
	key := planKey{p.Profile, p.UpgradeID, p.UpgradeManifestHash, p.Version}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now.UTC()
	known := r.prepared[key]
	if known == nil {
		templates, err := r.UpgradeManifests.Templates(ctx, p.Profile, p.UpgradeID)
		if err != nil {
			return prepared{}, err
		}
		if p.UpgradeManifestHash != "" && templates.Hash != p.UpgradeManifestHash {
			return prepared{}, fleet.Errorf(fleet.Conflict, "the upgrade manifest %s/%s or one of its templates was changed meanwhile: make a new rollout", p.Profile, p.UpgradeID)
		}
		known = &prepared{templates: templates}
		if len(r.prepared) >= maxPrepared {
			clear(r.prepared)
		}
	}
	if age := now.Sub(known.at); !known.templates.Empty() && (age < 0 || age >= packagesAge) {
		packages, err := r.Packages(ctx, known.templates.Component)
		if err != nil {
			return prepared{}, err
		}
		known.packages, known.at = packages.Of(p.Version), now
	}
	if p.UpgradeManifestHash != "" {
		if r.prepared == nil {
			r.prepared = map[planKey]*prepared{}
		}
		r.prepared[key] = known
	}
	return *known, nil
}

// RenderFor returns the files of the plan's component for an agent of a policy, sorted by
// path; none if the plan has no templates. Of variables, those of the plan override those of the
// policy, and the overrides of the upgrade manifest override both. It refuses what the host would refuse, as far as
// the server knows.
func (r *Renderer) RenderFor(ctx context.Context, p fleet.Plan, policy fleet.Policy, a *fleet.Agent) ([]agentapi.RenderedFile, error) {
	if p.UpgradeID == "" {
		return nil, nil
	}
	if err := ctx.Err(); err != nil { // of a preview of many hosts
		return nil, err
	}
	shared, err := r.prepare(ctx, p)
	if err != nil || shared.templates.Empty() {
		return nil, err
	}
	name := shared.templates.Component
	i := slices.IndexFunc(policy.Components, func(c agentapi.PolicyComponent) bool { return c.Name == name })
	switch {
	case i < 0:
		return nil, fleet.Errorf(fleet.Invalid, "policy %s has no component %s (host %s)", a.PolicyID, name, a.Hostname())
	case !policy.Components[i].ServerConfig:
		return nil, fleet.Errorf(fleet.Invalid, "the component's policy does not let the server write configuration: set server_config of %s in the policy %s (host %s)", name, a.PolicyID, a.Hostname())
	}
	if p.SourceURI == "" { // otherwise the package is not known; the host itself refuses the files
		if err := shared.checkPaths(p.Version, a); err != nil {
			return nil, err
		}
	}
	files, err := shared.templates.Render(ValuesOf(a, name, p.Version, policy.ComponentVariables[name], p.Variables, shared.templates.Overrides))
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "%w", err)
	}
	return files, nil
}

// Digest identifies files by their paths, modes and contents, as agents report it of what they
// have written. It is empty if there are none.
func (*Renderer) Digest(files []agentapi.RenderedFile) string {
	written := make([]manifest.WrittenFile, len(files))
	for i, f := range files {
		mode, _ := manifest.ParseMode(f.Mode) // CheckFiles has parsed it
		written[i] = manifest.WrittenFile{Path: f.Path, Mode: mode, SHA256: sha256.Sum256([]byte(f.Content))}
	}
	return manifest.ConfigDigest(written)
}

// checkPaths refuses files that the host's package does not let a server write.
func (p *prepared) checkPaths(version string, a *fleet.Agent) error {
	for _, pkg := range p.packages.For(version, a.Host()) {
		signed := manifest.Component{ServerFiles: pkg.ServerFiles}
		for _, f := range p.templates.files {
			if !signed.ServerMayWrite(f.Path) {
				return fleet.Errorf(fleet.Invalid, "%s: the publishers of %s do not let a server write it: name it in server-files of the package (%s, host %s)", f.Path, p.templates.Component, pkg.File, a.Hostname())
			}
		}
	}
	return nil
}

// before returns the files of the server that an agent has of a component, which is to get the
// files after; none if it has none, or if the server does not know them any more. What the
// agent reports decides: the last order may have failed, or been followed by a rollback.
func (r *Renderer) before(ctx context.Context, component string, a *fleet.Agent, after []agentapi.RenderedFile) ([]agentapi.RenderedFile, error) {
	subject := a.Of(component)
	has := subject.RenderedSHA256()
	if has == "" {
		return nil, nil
	}
	last, err := r.ordered(ctx, &subject)
	switch {
	case err != nil:
		return nil, err
	case r.Digest(last) == has:
		return last, nil
	case r.Digest(after) == has:
		return after, nil
	}
	return nil, nil
}

// ordered returns the files of the last order for a component; none if it had none, or was
// removed.
func (r *Renderer) ordered(ctx context.Context, s *fleet.Subject) ([]agentapi.RenderedFile, error) {
	if s.UpgradeActionID == "" {
		return nil, nil
	}
	found, err := r.Actions.For(ctx, s.UpgradeActionID, s.Agent.ID)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return nil, err
	}
	if err != nil || len(found) == 0 {
		return nil, nil
	}
	var data agentapi.UpgradeData
	if err := json.Unmarshal(found[0].Data, &data); err != nil || data.Component == nil || data.Component.Name != s.Component {
		return nil, nil
	}
	return data.Component.Files, nil
}

// MaxPreview is how many hosts one preview shows: as many as a person compares, in a second.
const MaxPreview = 100

// HostPreview is what one host would get.
type HostPreview struct {
	Agent  *fleet.Agent
	Digest string
	// Diff is from the files of the server that the host has, as far as they are known.
	Diff string
	// Err is why the host cannot get the files; then there are no others.
	Err error
}

// Preview renders the files of agents for a plan that has templates. policies has theirs by id.
func (r *Renderer) Preview(ctx context.Context, p fleet.Plan, policies map[string]fleet.Policy, agents []fleet.Agent) ([]HostPreview, error) {
	shared, err := r.prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	out := make([]HostPreview, 0, len(agents))
	for i := range agents {
		h := HostPreview{Agent: &agents[i]}
		after, err := r.RenderFor(ctx, p, policies[h.Agent.PolicyID], h.Agent)
		switch {
		case err != nil && fleet.KindOf(err) != fleet.Invalid:
			return nil, err
		case err != nil:
			h.Err = err
		default:
			before, err := r.before(ctx, shared.templates.Component, h.Agent, after)
			if err != nil {
				return nil, err
			}
			h.Digest, h.Diff = r.Digest(after), Diff(before, after)
		}
		out = append(out, h)
	}
	return out, nil
}

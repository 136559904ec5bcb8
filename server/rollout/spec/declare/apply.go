package declare

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/conversion"
	"github.com/muster-fleet/muster/server/rollout/spec/v1alpha1"
	"github.com/muster-fleet/muster/server/store"
)

// Options are how an object is applied.
type Options struct {
	Request
	Mode spec.Mode
	// DryRun checks everything and stores nothing.
	DryRun bool
	// Create refuses to replace an object.
	Create bool
}

// Applied is an object that was applied.
type Applied struct {
	Object
	// Version is that of the body, for the answer.
	Version string
	Created bool
	// Same means that nothing differed, so nothing was written.
	Same     bool
	Warnings []string
}

// Apply creates an object, or replaces the labels, annotations and the spec of one. body is JSON
// or YAML of any version of the API. name is that of the request, empty if the body alone names
// it.
func (s *Service) Apply(ctx context.Context, name string, body []byte, o Options) (Applied, error) {
	if err := o.check(); err != nil {
		return Applied{}, err
	}
	in, version, warnings, err := decode(name, body, o.Mode)
	if err != nil {
		return Applied{}, err
	}
	missing, err := s.unpublished(ctx, &in.Fleet)
	if err != nil {
		return Applied{}, err
	}
	warnings = append(warnings, missing...)
	var (
		a       Applied
		changed []string
	)
	next := func(was *fleet.DeclaredFleet) (fleet.DeclaredFleet, error) {
		old, err := existing(was, &in.Fleet, o.Create)
		if err != nil {
			return fleet.DeclaredFleet{}, err
		}
		a = Applied{Object: s.next(old, in), Version: version, Created: old == nil, Warnings: warnings}
		if text := promotesNothing(old, &a.Object); text != "" && version == spec.APIVersion { // an older version has its own warning
			a.Warnings = append(slices.Clip(warnings), text)
		}
		changed = changes(old, a.Object)
		if a.Same = old != nil && len(changed) == 0; a.Same {
			return *was, nil
		}
		return a.stored()
	}
	name = in.Metadata.Name
	if o.DryRun {
		was, err := store.Optional(s.Store.DeclaredFleets().Get(ctx, name))
		if err == nil {
			_, err = next(was)
		}
		if err == nil {
			err = s.checkRoom(ctx, a.Created)
		}
		return a, err
	}
	d, written, err := store.Put(ctx, counted{s.Store.DeclaredFleets(), s}, name, next, func(_, _ fleet.DeclaredFleet) error {
		text := "created the fleet " + name
		if !a.Created {
			text = fmt.Sprintf("changed the fleet %s: %s", name, sentence(changed))
		}
		return s.record(ctx, &a.Object, verbApply, text, changed, o.Request)
	})
	switch {
	case err != nil || !written:
		return a, err
	case a.Created:
		a.Object, err = s.Get(ctx, name)
	default:
		a.Object, err = load(d)
	}
	if err == nil {
		s.publish(ctx, &a.Object, verbApply, changed, o.Request)
	}
	return a, err
}

// counted creates no more objects than there may be.
type counted struct {
	store.Collection[fleet.DeclaredFleet]
	s *Service
}

func (c counted) Create(ctx context.Context, d fleet.DeclaredFleet) error {
	return c.s.Store.Exclusively(ctx, "declared fleets", func(ctx context.Context) error {
		if err := c.s.checkRoom(ctx, true); err != nil {
			return err
		}
		return c.Collection.Create(ctx, d)
	})
}

// promotesNothing returns why forcePromote of an object can promote no rollout, as a warning; empty: it
// can. It names the rollout of the spec as it is now, or the one that is past its canaries and goes
// on although the spec has changed.
func promotesNothing(old *Object, o *Object) string {
	want, hash := o.Spec.ForcePromote, spec.Hash(&o.Fleet)
	switch {
	case want == "" || want == hash:
		return ""
	case old != nil && want == old.Status.RequestedRolloutHash && isTrue(&old.Status, spec.Promoting):
		return ""
	case len(want) != len(hash):
		return fmt.Sprintf("spec.forcePromote is a UUID of %s, and promotes nothing: the rollout of this spec has the hash %s", v1alpha1.APIVersion, hash)
	}
	return fmt.Sprintf("spec.forcePromote names no rollout of this spec, and promotes nothing: its rollout has the hash %s", hash)
}

func isTrue(st *spec.Status, t spec.ConditionType) bool {
	c := st.Condition(t)
	return c != nil && c.Status == spec.True
}

// decode reads an object of any version of the API, and checks it.
func decode(name string, body []byte, mode spec.Mode) (in Object, version string, warnings []string, err error) {
	doc, err := spec.Read(body)
	if err != nil {
		return in, "", nil, err
	}
	version = doc.APIVersion
	switch version {
	case spec.APIVersion:
		in.Written, warnings, err = doc.Into(&in.Fleet, mode)
	case v1alpha1.APIVersion:
		in, warnings, err = decodeOld(doc, mode)
	default:
		err = spec.Problems{{Path: "apiVersion", Text: fmt.Sprintf("is %q, want %s or %s", version, spec.APIVersion, v1alpha1.APIVersion)}}.Err()
	}
	if err != nil {
		return in, version, warnings, err
	}
	in.APIVersion, in.Kind, in.Status = spec.APIVersion, spec.Kind, spec.Status{}
	problems := spec.Check(&in.Fleet)
	if name != "" && in.Metadata.Name != "" && in.Metadata.Name != name {
		problems = append(problems, strict.Fault{Path: "metadata.name", Text: fmt.Sprintf("is %q, but the request is for %q", in.Metadata.Name, name)})
	}
	if len(in.Written) == 0 {
		problems = append(problems, strict.Fault{Path: "spec", Text: "is missing"})
	}
	return in, version, warnings, problems.Err()
}

func decodeOld(doc *spec.Document, mode spec.Mode) (in Object, warnings []string, err error) {
	var old v1alpha1.Fleet
	_, warnings, err = doc.Into(&old, mode)
	if err != nil {
		return in, nil, err
	}
	text := doc.JSON()
	converted, err := conversion.Object(text, spec.APIVersion)
	if err != nil {
		return in, nil, err
	}
	current, err := spec.Read(converted)
	if err != nil {
		return in, nil, err
	}
	in.Written, _, err = current.Into(&in.Fleet, spec.Strict)
	return in, append(warnings, v1alpha1.Warnings(text)...), err
}

// unpublished returns a warning for each version or upgrade manifest that is not there yet. Tools
// apply objects before a package is pushed, so it is no error.
func (s *Service) unpublished(ctx context.Context, f *spec.Fleet) (warnings []string, err error) {
	for _, p := range f.Spec.Parts() {
		if p.UpgradeManifest != nil {
			if _, err := s.Rollouts.GetUpgradeManifest(ctx, p.UpgradeManifest.Profile, p.UpgradeManifest.ID); err != nil {
				warnings = append(warnings, fmt.Sprintf("the upgrade manifest of %s cannot be used yet: %v", p.Name(), err))
			}
			continue
		}
		catalog, err := s.Rollouts.Actions.CatalogOf(ctx, p.Component)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(catalog, func(pkg fleet.Package) bool { return pkg.Version == p.Version }) {
			warnings = append(warnings, fmt.Sprintf("%s %s is not published: its rollout starts once it is", p.Name(), p.Version))
		}
	}
	return warnings, nil
}

// existing returns the object that is to be replaced, nil if there is none. It refuses a uid or a
// resourceVersion that is not that of the object.
func existing(was *fleet.DeclaredFleet, f *spec.Fleet, create bool) (*Object, error) {
	m := &f.Metadata
	switch {
	case was == nil && (m.UID != "" || m.ResourceVersion != ""):
		return nil, fleet.Errorf(fleet.Conflict, "there is no fleet %s any more: leave metadata.uid and metadata.resourceVersion out to create it", m.Name)
	case was == nil:
		return nil, nil //nolint:nilnil // there is none
	}
	old, err := load(*was)
	switch {
	case err != nil:
		return nil, err
	case create:
		return nil, fleet.Errorf(fleet.Conflict, "fleet %s exists already: use PUT to replace it", m.Name)
	case m.UID != "" && m.UID != old.Metadata.UID:
		return nil, fleet.Errorf(fleet.Conflict, "metadata.uid is %s, but fleet %s has %s: it was deleted and created again since you read it", m.UID, m.Name, old.Metadata.UID)
	case m.ResourceVersion != "" && m.ResourceVersion != old.Metadata.ResourceVersion:
		return nil, fleet.Errorf(fleet.Conflict, "metadata.resourceVersion is %s, but fleet %s has %s: it was changed since you read it, so read it and apply your change again", m.ResourceVersion, m.Name, old.Metadata.ResourceVersion)
	}
	return &old, nil
}

// next returns the object that is stored over old, which may be nil.
func (s *Service) next(old *Object, in Object) Object {
	m := &in.Metadata
	if old == nil {
		now := s.Now.UTC().Truncate(time.Second) // as Kubernetes encodes times
		m.UID, m.ResourceVersion, m.Generation, m.CreationTimestamp = fleet.NewID(), "", 1, &now
		return in
	}
	m.UID, m.ResourceVersion, m.Generation, m.CreationTimestamp = old.Metadata.UID, old.Metadata.ResourceVersion, old.Metadata.Generation, old.Metadata.CreationTimestamp
	in.Status = old.Status
	if !sameJSON(old.Written, in.Written) || old.Metadata.Annotations[spec.ForceRolloutAnnotation] != m.Annotations[spec.ForceRolloutAnnotation] {
		m.Generation++
		in.Status.Suspended = nil // the operator declares what is to be done from now on
	}
	return in
}

// checkRoom refuses one object too many.
func (s *Service) checkRoom(ctx context.Context, creates bool) error {
	if !creates {
		return nil
	}
	_, n, err := s.Store.DeclaredFleets().List(ctx, 0, 1)
	if err == nil && n >= MaxObjects {
		err = fleet.Errorf(fleet.Conflict, "there are %d fleets, which is the most: delete some, or select more agents by one", n)
	}
	return err
}

// Delete removes an object, and cancels its rollout under way unless that is promoting. Agents
// stay as they are. It returns the object as it was.
func (s *Service) Delete(ctx context.Context, name string, dryRun bool, req Request) (Object, error) {
	if err := req.check(); err != nil {
		return Object{}, err
	}
	o, err := s.Get(ctx, name)
	if err != nil || dryRun {
		return o, err
	}
	if err := s.record(ctx, &o, verbDelete, "deleted the fleet "+name, nil, req); err != nil {
		return o, err
	}
	// Before the rollout is cancelled, so that the loop starts no other one.
	if err := s.Store.DeclaredFleets().Delete(ctx, name); err != nil {
		return o, err
	}
	s.publish(ctx, &o, verbDelete, nil, req)
	return o, s.cancel(ctx, name, req)
}

// cancel cancels the rollouts of an object that are under way, except promoting ones.
func (s *Service) cancel(ctx context.Context, name string, req Request) error {
	active, err := s.Store.Rollouts().Active(ctx)
	if err != nil {
		return err
	}
	why := "fleet " + name + " was deleted"
	if req.Why != "" {
		why += ": " + req.Why
	}
	for _, head := range active {
		r, err := s.Store.Rollouts().Get(ctx, head.ID)
		if err != nil && fleet.KindOf(err) == fleet.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if r.Fleet != name || r.State == fleet.RolloutCancelling || plan.Promoting(&r) {
			continue
		}
		if _, err := s.Rollouts.Replace(ctx, r.ID, rollout.Request{Actor: req.Actor, Why: why[:min(len(why), maxWhy)]}); err != nil {
			return fmt.Errorf("fleet %s was deleted, but its rollout %s goes on: %w", name, r.ID, err)
		}
	}
	return nil
}

// sameJSON reports whether two values have the same canonical JSON.
func sameJSON(a, b any) bool {
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// changes returns the paths of what operators write that differ between two objects, of which the
// first may be nil.
func changes(old *Object, o Object) []string {
	var before any
	if old != nil {
		before = old.declared()
	}
	return spec.Differences(before, o.declared())
}

// declared returns what operators write of the object, as encoding/json decodes it.
func (o Object) declared() any {
	var s any
	_ = json.Unmarshal(o.Written, &s) // it was decoded before
	return map[string]any{
		"metadata": map[string]any{"labels": anyMap(o.Metadata.Labels), "annotations": anyMap(o.Metadata.Annotations)},
		"spec":     s,
	}
}

func anyMap(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for k, v := range in {
		out[k] = v
	}
	return out
}

package infra

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
)

// Policies gives policies new revisions.
type Policies interface {
	// Bump gives a new revision to each policy for which uses returns true.
	Bump(ctx context.Context, uses func(fleet.Policy) bool, actor string) error
	// AllowHosts returns an error if other hosts of Fleet Server would send more agents to other
	// servers than the removal limit permits, and records those that are sent. Both lists are
	// those of Hosts().List.
	AllowHosts(ctx context.Context, before, after []fleet.FleetServerHost, overrideLimit bool, actor string) error
}

// Service changes objects. The policies that use a changed object get a new revision, so
// that their agents receive it.
type Service struct {
	Objects
	Policies Policies
	Now      clock.Clock
}

// Fields are the fields of an object as a client gives them: an absent one keeps its value,
// null removes it.
type Fields map[string]json.RawMessage

// Editor changes the objects of one kind.
type Editor[T any, P object[T]] struct {
	Set[T, P]
	service *Service
	rules   rules[T]
}

// rules are what differs between the kinds. They are those of Kibana's schemas.
type rules[T any] struct {
	verb string // in the audit trail
	// create and update return the fields that a client may give. kind is the value of the
	// field type, of the request or else of the stored object.
	create, update func(kind string) []string
	kind           func(*T) string // nil: the kind has no types
	// required are the fields that a new object must have, with their types; the full update
	// of some kinds needs them, too.
	required       [][2]string
	requiredUpdate bool
	// cleared returns the fields that an update removes unless they are given.
	cleared func(Fields) []string
	// secrets are the paths below the field secrets. Muster moves them to the fields of the
	// same name, as Kibana does where it has no storage for secrets.
	secrets []string
	// prepare completes a new object. It may be nil.
	prepare func(*T)
	// check checks an object that is to be stored; given are the fields of the request.
	check func(ctx context.Context, s *Service, old *T, v *T, given Fields) error
	// allow returns an error if the objects must not change so; both lists are as List returns
	// them. It may be nil.
	allow func(ctx context.Context, before, after []T, actor string) error
	// keep returns an error if the object must not be deleted.
	keep func(*T) error
	// uses reports whether a policy uses the object.
	uses func(p fleet.Policy, v *T) bool
	// drop removes the object's id from a policy, and reports whether it had it. It may be
	// nil.
	drop func(p *fleet.Policy, id string) bool
	// release removes the id of a deleted object from objects of other kinds. It may be nil.
	release func(ctx context.Context, s *Service, id string) error
	// unset makes an object no longer the default where another becomes it, and reports
	// whether that changed the object. It is nil if there is no default.
	unset func(object, other *T) bool
}

// fields checks the names of the given fields, and moves the secret ones.
func (e Editor[T, P]) fields(given Fields, allowed []string) (Fields, error) {
	out := maps.Clone(given)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name != "secrets" && !slices.Contains(allowed, name) || name == "secrets" && len(e.rules.secrets) == 0 {
			return nil, fleet.FieldError("body."+name, "definition for this key is missing")
		}
	}
	tree, ok := out["secrets"]
	delete(out, "secrets")
	if !ok {
		return out, nil
	}
	return out, e.moveSecrets(out, "", tree)
}

func (e Editor[T, P]) moveSecrets(out Fields, at string, raw json.RawMessage) error {
	var level map[string]json.RawMessage
	if err := json.Unmarshal(raw, &level); err != nil {
		return fleet.FieldError("body.secrets"+at, "expected a plain object value")
	}
	for _, name := range slices.Sorted(maps.Keys(level)) {
		path, value := strings.TrimPrefix(at+"."+name, "."), level[name]
		switch {
		case string(value) == "null":
		case slices.ContainsFunc(e.rules.secrets, func(s string) bool { return strings.HasPrefix(s, path+".") }):
			if err := e.moveSecrets(out, at+"."+name, value); err != nil {
				return err
			}
		case !slices.Contains(e.rules.secrets, path):
			return fleet.FieldError("body.secrets."+path, "definition for this key is missing")
		default:
			var text string
			if err := json.Unmarshal(value, &text); err != nil {
				return fleet.FieldError("body.secrets."+path, "want the value itself: Muster keeps it encrypted with the object, and has no ids of secrets")
			}
			if err := out.put(path, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// put sets the field at a path of one or two steps.
func (f Fields) put(path string, value json.RawMessage) error {
	outer, inner, nested := strings.Cut(path, ".")
	if !nested {
		if err := notBoth(f[outer], path); err != nil {
			return err
		}
		f[outer] = value
		return nil
	}
	object := map[string]json.RawMessage{}
	if raw, ok := f[outer]; ok && string(raw) != "null" {
		if err := json.Unmarshal(raw, &object); err != nil {
			return fleet.FieldError("body."+outer, "expected a plain object value")
		}
	}
	if err := notBoth(object[inner], path); err != nil {
		return err
	}
	object[inner] = value
	raw, err := json.Marshal(object)
	f[outer] = raw
	return err
}

// notBoth returns an error if a secret field is also given outside of secrets.
func notBoth(raw json.RawMessage, path string) error {
	if s := string(raw); s != "" && s != "null" && s != `""` {
		return fleet.Errorf(fleet.Invalid, "Cannot specify both %s and secrets.%s", path, path)
	}
	return nil
}

// overlay returns v with the given fields.
func overlay[T any](v T, given Fields, allowed []string) (T, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	fields := Fields{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return v, err
	}
	// An output that changes its type loses the fields of the old one.
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return !slices.Contains(allowed, name) && name != "id" })
	for name, value := range given {
		if string(value) == "null" {
			delete(fields, name)
		} else {
			fields[name] = value
		}
	}
	if text, err = json.Marshal(fields); err != nil {
		return v, err
	}
	var out T
	if err := json.Unmarshal(text, &out); err != nil {
		return v, fleet.FieldError("body", "%w", err)
	}
	return out, nil
}

func (f Fields) text(name string) string {
	var s string
	_ = json.Unmarshal(f[name], &s) // absent or of another type: ""
	return s
}

// missing returns an error if a required field is null or, unless absent ones are allowed,
// absent.
func (e Editor[T, P]) missing(given Fields, allowAbsent bool) error {
	for _, r := range e.rules.required {
		switch raw, ok := given[r[0]]; {
		case !ok && allowAbsent:
		case !ok:
			return fleet.FieldError("body."+r[0], "expected value of type [%s] but got [undefined]", r[1])
		case string(raw) == "null":
			return fleet.FieldError("body."+r[0], "expected value of type [%s] but got [null]", r[1])
		}
	}
	return nil
}

// Create stores a new object. An absent id is replaced by a random one.
func (e Editor[T, P]) Create(ctx context.Context, given Fields, actor string) (T, error) {
	var v T
	allowed := e.rules.create(given.text("type"))
	given, err := e.fields(given, allowed)
	if err != nil {
		return v, err
	}
	if err := e.missing(given, false); err != nil {
		return v, err
	}
	if v, err = overlay(v, given, allowed); err != nil {
		return v, err
	}
	id := e.head(&v).id
	if *id == "" {
		*id = fleet.NewID()
	} else if err := fleet.CheckID("body.id", *id); err != nil {
		return v, err
	}
	if e.rules.prepare != nil {
		e.rules.prepare(&v)
	}
	err = e.exclusively(ctx, func(ctx context.Context) error {
		if err := e.rules.check(ctx, e.service, nil, &v, given); err != nil {
			return err
		}
		if _, err := e.Get(ctx, *id); err == nil {
			return fleet.Errorf(fleet.Conflict, "%s %s already exists", e.noun, *id)
		} else if fleet.KindOf(err) != fleet.NotFound {
			return err
		}
		if err := e.allow(ctx, actor, e.put(v)); err != nil {
			return err
		}
		if err := e.record(ctx, actor, "create", "created", *id, nil); err != nil {
			return err
		}
		if err := e.clearDefault(ctx, &v); err != nil {
			return err
		}
		sealed, err := e.sealed(v)
		if err != nil {
			return err
		}
		return e.stored.Create(ctx, sealed)
	})
	if err != nil {
		return v, err
	}
	if err := e.bump(ctx, actor, &v); err != nil {
		return v, err
	}
	return e.Get(ctx, *id)
}

// Update changes an object.
func (e Editor[T, P]) Update(ctx context.Context, id string, given Fields, actor string) (T, error) {
	var old, v T
	err := e.exclusively(ctx, func(ctx context.Context) error {
		// An object that is not stored is the built-in one, which is stored now.
		_, _, err := store.Put(ctx, e.stored, id, func(*T) (sealed T, err error) {
			if old, err = e.Get(ctx, id); err != nil {
				return old, err
			}
			var in Fields
			if v, in, err = e.edited(old, id, given); err != nil {
				return v, err
			}
			if err := e.rules.check(ctx, e.service, &old, &v, in); err != nil {
				return v, err
			}
			if err := e.allow(ctx, actor, e.put(v)); err != nil {
				return v, err
			}
			return e.sealed(v)
		}, func(_, _ T) error {
			if err := e.record(ctx, actor, "update", "changed", id, audit.Changes(old, v)); err != nil {
				return err
			}
			return e.clearDefault(ctx, &v)
		})
		return err
	})
	if err != nil {
		return old, err
	}
	if err := e.bump(ctx, actor, &old, &v); err != nil {
		return v, err
	}
	return e.Get(ctx, id)
}

// edited returns an object with the given fields, and these as they were read.
func (e Editor[T, P]) edited(old T, id string, given Fields) (v T, in Fields, err error) {
	kind := given.text("type")
	if kind == "" && e.rules.kind != nil {
		kind = e.rules.kind(&old)
	}
	allowed := e.rules.update(kind)
	if in, err = e.fields(given, allowed); err != nil {
		return old, in, err
	}
	if own := in.text("id"); own != "" && own != id {
		return old, in, fleet.FieldError("body.id", "is %q: an id cannot be changed", own)
	}
	if err := e.missing(in, !e.rules.requiredUpdate); err != nil {
		return old, in, err
	}
	if e.rules.cleared != nil {
		for _, name := range e.rules.cleared(in) {
			if _, ok := in[name]; !ok {
				in[name] = json.RawMessage("null")
			}
		}
	}
	if v, err = overlay(old, in, slices.Concat(e.rules.create(kind), allowed)); err != nil {
		return old, in, err
	}
	*e.head(&v).id = id
	*e.head(&v).revision = *e.head(&old).revision
	return v, in, nil
}

// Delete removes an object, and its id from everything that refers to it.
func (e Editor[T, P]) Delete(ctx context.Context, id, actor string) error {
	old, err := e.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := e.rules.keep(&old); err != nil {
		return err
	}
	if *e.head(&old).revision == 0 {
		return fleet.Errorf(fleet.Invalid, "%s %s is made from the server's configuration, and cannot be deleted", e.noun, id)
	}
	err = e.allow(ctx, actor, func(all []T) []T { return slices.DeleteFunc(all, func(v T) bool { return *e.head(&v).id == id }) })
	if err != nil {
		return err
	}
	if err := e.record(ctx, actor, "delete", "deleted", id, nil); err != nil {
		return err
	}
	used := map[string]bool{}
	all, _, err := e.service.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, p := range all {
		used[p.ID] = e.rules.uses(p, &old)
	}
	if e.rules.drop != nil {
		if err := e.dropFrom(ctx, all, id); err != nil {
			return err
		}
	}
	if e.rules.release != nil {
		if err := e.rules.release(ctx, e.service, id); err != nil {
			return err
		}
	}
	if err := e.stored.Delete(ctx, id); err != nil {
		return err
	}
	return e.service.Policies.Bump(ctx, func(p fleet.Policy) bool { return used[p.ID] }, actor)
}

// dropFrom removes the id of a deleted object from policies.
func (e Editor[T, P]) dropFrom(ctx context.Context, all []fleet.Policy, id string) error {
	for _, p := range all {
		if !e.rules.drop(&p, id) {
			continue
		}
		_, _, err := store.Change(ctx, e.service.Store.Policies(), p.ID, func(p fleet.Policy) (fleet.Policy, error) {
			e.rules.drop(&p, id)
			return p, nil
		})
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return err
		}
	}
	return nil
}

// exclusively checks and writes an object's name and its flags of the default as one.
func (e Editor[T, P]) exclusively(ctx context.Context, f func(context.Context) error) error {
	return e.service.Store.Exclusively(ctx, "objects of the kind "+e.noun, f)
}

// oneDefault takes the flags of the default from all objects but one, if a server that died while it
// changed the default has left several.
func (e Editor[T, P]) oneDefault(ctx context.Context) error {
	if e.rules.unset == nil {
		return nil
	}
	return e.exclusively(ctx, func(ctx context.Context) error {
		all, _, err := e.stored.List(ctx, 0, 0)
		if err != nil {
			return err
		}
		for i := range all {
			for k := range all[:i] { // the newest, which lists have first, keeps it
				if !e.rules.unset(&all[i], &all[k]) {
					continue
				}
				if _, err := e.stored.Update(ctx, all[i]); err != nil {
					return err
				}
				break
			}
		}
		return nil
	})
}

// OneDefault makes sure that one object of each kind is the default, at most.
func (s *Service) OneDefault(ctx context.Context) error {
	return errors.Join(s.EditHosts(false).oneDefault(ctx), s.EditSources().oneDefault(ctx), s.EditOutputs().oneDefault(ctx))
}

// allow asks the rule of the kind about a change of the stored objects.
func (e Editor[T, P]) allow(ctx context.Context, actor string, change func(stored []T) []T) error {
	if e.rules.allow == nil {
		return nil
	}
	stored, err := e.opened(ctx)
	if err != nil {
		return err
	}
	after := e.arrange(change(slices.Clone(stored)))
	return e.rules.allow(ctx, e.arrange(stored), after, actor)
}

// put returns the change that stores v, for allow.
func (e Editor[T, P]) put(v T) func([]T) []T {
	return func(all []T) []T {
		revision := e.head(&v).revision
		*revision = max(*revision, 1) // 0 is the built-in object
		at := e.index(all, *e.head(&v).id)
		if at < 0 {
			at = len(all)
			all = append(all, v)
		}
		all[at] = v
		for i := range all {
			if i != at && e.rules.unset != nil {
				e.rules.unset(&all[i], &v)
			}
		}
		return all
	}
}

// clearDefault clears the default flags of the other stored objects that v takes over. Until v
// is stored, the built-in object or none is the default.
func (e Editor[T, P]) clearDefault(ctx context.Context, v *T) error {
	if e.rules.unset == nil {
		return nil
	}
	all, _, err := e.stored.List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, other := range all {
		if *e.head(&other).id == *e.head(v).id || !e.rules.unset(&other, v) {
			continue
		}
		if _, err := e.stored.Update(ctx, other); err != nil {
			return err
		}
	}
	return nil
}

// bump gives a new revision to the policies that use one of the objects.
func (e Editor[T, P]) bump(ctx context.Context, actor string, objects ...*T) error {
	return e.service.Policies.Bump(ctx, func(p fleet.Policy) bool {
		return slices.ContainsFunc(objects, func(v *T) bool { return e.rules.uses(p, v) })
	}, actor)
}

// sealed returns v as it is stored.
func (e Editor[T, P]) sealed(v T) (T, error) {
	// A copy that shares nothing with v, whose secrets are cleared.
	text, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	var out T
	if err := json.Unmarshal(text, &out); err != nil {
		return v, err
	}
	*e.head(&out).revision = *e.head(&v).revision
	return out, e.seal(&out)
}

func (e Editor[T, P]) record(ctx context.Context, actor, verb, done, id string, changes []audit.FieldChange) error {
	text := done + " the " + strings.ReplaceAll(e.rules.verb, "_", " ") + " " + id
	if len(changes) > 0 {
		text += ": " + audit.ChangedNames(changes)
	}
	return audit.Record(ctx, e.service.Store.Audit(), e.service.Now.UTC(), fleet.AuditEntry{
		Actor: actor, Verb: e.rules.verb + "." + verb, Subject: id, Text: text, Data: audit.ChangeData(changes),
	})
}

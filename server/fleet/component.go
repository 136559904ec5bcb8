package fleet

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// imageForm is that of a reference by digest: a tag can be moved to other code.
var imageForm = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._:/-]{0,254}@sha256:[0-9a-f]{64}$`)

// CheckComponents returns an error about the first component that is not valid, with its field
// of the request.
func CheckComponents(field string, list []agentapi.PolicyComponent) error {
	if len(list) > agentapi.MaxComponents {
		return FieldError(field, "are %d, want at most %d", len(list), agentapi.MaxComponents)
	}
	seen := map[string]bool{}
	for i, c := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := manifest.ValidComponentName(c.Name); err != nil {
			return FieldError(at+".name", "%w", err)
		}
		if seen[c.Name] {
			return FieldError(at+".name", "is %q, as is that of another component of the policy", c.Name)
		}
		seen[c.Name] = true
		if err := checkComponent(at, c); err != nil {
			return err
		}
	}
	return nil
}

func checkComponent(at string, c agentapi.PolicyComponent) error {
	if err := manifest.ValidRuntimeName(c.Runtime); err != nil {
		return FieldError(at+".runtime", "%w", err)
	}
	if c.Version != "" {
		if _, err := manifest.ParseVersion(c.Version); err != nil {
			return FieldError(at+".version", "%w", err)
		}
	}
	if err := checkImage(at+".artifact.image", c); err != nil {
		return err
	}
	return checkHealth(at+".health", c.Health)
}

func checkImage(field string, c agentapi.PolicyComponent) error {
	image, runtime := c.Artifact.Image, Runtime(c.Runtime)
	switch {
	case image == "":
	case !imageForm.MatchString(image):
		return FieldError(field, "is %q, want an image by its digest, such as registry.example.com/web@sha256:… with 64 hexadecimal digits: a tag can be moved", image)
	case runtime == RuntimeProcess || runtime == RuntimeSystemd:
		return FieldError(field, "is %q, and the runtime %s runs no images", image, runtime)
	}
	return nil
}

// CheckPin returns an error if a policy pins another image of its component than what is to be
// installed. Its host would refuse that.
func CheckPin(c agentapi.PolicyComponent, version, image string) error {
	if pinned := c.Artifact.Image; pinned != "" && image != "" && image != pinned {
		return Errorf(Invalid, "%s %s is the image %s, and the policy pins %s: correct artifact.image in the policy", c.Name, version, image, pinned).Because(CausePinned)
	}
	return nil
}

func checkHealth(at string, h agentapi.ComponentHealth) error {
	field, err := h.Check(manifest.MaxChecks, manifest.MaxCheckTimeout, func(c agentapi.ComponentCheck) error {
		check := manifest.Check{Name: c.Name, HTTP: c.HTTP, TCP: c.TCP, Timeout: time.Duration(c.TimeoutSeconds) * time.Second, Threshold: c.Threshold}
		switch err := check.Validate(); {
		case (c.HTTP == "") == (c.TCP == ""):
			return errors.New("wants exactly one of http and tcp: what a host executes is in the signed package")
		case err != nil:
			return err
		case strings.Contains(c.Name+c.HTTP+c.TCP, "${"):
			return errors.New("has ${, which Elastic Agents of the policy would take for a variable, and refuse the whole policy")
		}
		return nil
	})
	if err != nil {
		return FieldError(at+"."+field, "%w", err)
	}
	seen := map[string]bool{}
	for i, c := range h.Checks {
		if seen[c.Name] {
			return FieldError(fmt.Sprintf("%s.checks[%d].name", at, i), "is %q, as is that of another check", c.Name)
		}
		seen[c.Name] = true
	}
	return nil
}

// KeepInForce returns a new list of a policy's components. Which version of a component is in
// force is the server's record: it stays for as long as the policy lists the component with
// lockstep, and a new list may only repeat it.
func KeepInForce(field string, old, list []agentapi.PolicyComponent) ([]agentapi.PolicyComponent, error) {
	was, kept := Policy{Components: old}, slices.Clone(list)
	for i := range kept {
		c := &kept[i]
		var has *agentapi.ComponentInForce
		if o := was.Component(c.Name); o != nil {
			has = o.InForce
		}
		if c.InForce != nil && (has == nil || *c.InForce != *has) {
			return nil, FieldError(fmt.Sprintf("%s[%d].in_force", field, i), "is set by the server, from rollouts in lockstep: leave it out")
		}
		if c.InForce = nil; c.Lockstep {
			c.InForce = has
		}
	}
	return kept, nil
}

// Component returns a component of the policy, nil if the policy does not list it.
func (p *Policy) Component(name string) *agentapi.PolicyComponent {
	if i := slices.IndexFunc(p.Components, func(c agentapi.PolicyComponent) bool { return c.Name == name }); i >= 0 {
		return &p.Components[i]
	}
	return nil
}

// InForce returns the version of a component that hosts of the policy have to run; ok is false
// if the policy prescribes none, or while a rollout in lockstep changes it.
func InForce(c agentapi.PolicyComponent) (version string, ok bool) {
	if !c.Lockstep || c.InForce == nil || c.InForce.Changing || c.InForce.Version == "" {
		return "", false
	}
	return c.InForce.Version, true
}

// WantedVersion returns the version of a component that the agents of its policy are to run; empty if
// the policy leaves that to operators.
func WantedVersion(c agentapi.PolicyComponent) string {
	if c.Lockstep && c.InForce != nil {
		version, _ := InForce(c)
		return version
	}
	return c.Version
}

// ErrInForce refuses an upgrade because another version is in force.
var ErrInForce = errors.New("is in force for the policy")

// CheckInForce returns an error if a host of a policy must not be brought to a version of a
// component except in lockstep with the others: it would run another version than they do.
func CheckInForce(c agentapi.PolicyComponent, version string) error {
	if !c.Lockstep || c.InForce == nil {
		return nil
	}
	if c.InForce.Changing {
		return Errorf(Conflict, "a rollout in lockstep changes component %s for all hosts of the policy: wait until it has ended", c.Name).Because(CauseInForce)
	}
	if version == c.InForce.Version {
		return nil
	}
	return Errorf(Invalid, "%s %s %w, whose hosts must not run mixed versions: to bring all of them to %s, make a rollout in lockstep (strategy: {kind: lockstep})",
		c.Name, c.InForce.Version, ErrInForce, version).Because(CauseInForce)
}

package docker

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// Acquire pulls the image unless the host has it.
func (a *Adapter) Acquire(ctx context.Context, r *runtime.Release, report func(percent float64)) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	img, err := a.image(ctx, s)
	if err != nil {
		return err
	}
	if img == nil {
		if err := a.pull(ctx, s, report); err != nil {
			return err
		}
	}
	report(100)
	return nil
}

// Acquired reports whether the host has the image.
func (a *Adapter) Acquired(ctx context.Context, r *runtime.Release) (bool, error) {
	s, err := parse(r)
	if err != nil {
		return false, err
	}
	img, err := a.image(ctx, s)
	return img != nil, err
}

// Verify checks that the host has the image with the manifest's digest, that the engine can
// run it, and that no data is lost with its containers.
func (a *Adapter) Verify(ctx context.Context, r *runtime.Release) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	img, err := a.image(ctx, s)
	if err != nil {
		return err
	}
	if img == nil {
		return fmt.Errorf("image %s is not on this host", s.Image)
	}
	version, err := a.engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return a.explain(ctx, "ask for the engine's platform", err)
	}
	return s.suits(img, version.Os, version.Arch)
}

// image returns the image with the manifest's digest, or nil if the host does not have it.
// The engine verifies the content of images when it stores them, by their digests.
func (a *Adapter) image(ctx context.Context, s *settings) (*image.InspectResponse, error) {
	// Images that were loaded and not pulled are known by their id only.
	for _, name := range []string{s.Image, s.Digest.String()} {
		answer, err := a.engine.ImageInspect(ctx, name)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, a.explain(ctx, "look for image "+s.Image, err)
		}
		if s.matches(&answer.InspectResponse) {
			return &answer.InspectResponse, nil
		}
	}
	return nil, nil //nolint:nilnil // no image is an answer
}

// matches reports whether the digest of the manifest is that of the image, or its id.
func (s *settings) matches(img *image.InspectResponse) bool {
	return img.ID == s.Digest.String() || slices.ContainsFunc(img.RepoDigests, func(d string) bool {
		return strings.HasSuffix(d, "@"+s.Digest.String())
	})
}

// runsToo are the architectures whose images run on another one without emulation.
var runsToo = map[string]string{"arm64": "arm", "amd64": "386"}

// suits returns an error if the engine's platform cannot run the image, or if the image
// has a volume that no mount covers.
func (s *settings) suits(img *image.InspectResponse, goos, arch string) error {
	if img.Os != goos || img.Architecture != arch && img.Architecture != runsToo[arch] {
		return fmt.Errorf("image %s is for %s/%s, and the engine runs %s/%s", s.Image, img.Os, img.Architecture, goos, arch)
	}
	if img.Config == nil {
		return nil
	}
	for _, volume := range slices.Sorted(maps.Keys(img.Config.Volumes)) {
		if !slices.ContainsFunc(s.Mounts, func(m runtimes.Mount) bool { return m.Target == path.Clean(volume) }) {
			return fmt.Errorf("image %s declares the volume %s, and each version would begin with an empty one: name what is there in mounts", s.Image, volume)
		}
	}
	return nil
}

func (a *Adapter) pull(ctx context.Context, s *settings, report func(percent float64)) error {
	stream, err := a.engine.ImagePull(ctx, s.Image, client.ImagePullOptions{})
	if err != nil {
		return a.explainPull(ctx, s, err)
	}
	defer stream.Close()
	p := progress{layers: map[string]float64{}}
	for message, err := range stream.JSONMessages(ctx) {
		if err == nil && message.Error != nil {
			err = message.Error
		}
		if err != nil {
			return a.explainPull(ctx, s, err)
		}
		if p.add(message) {
			report(p.percent)
		}
	}
	// The stream of an engine that ends looks like its normal end.
	img, err := a.image(ctx, s)
	if err == nil && img == nil {
		err = fmt.Errorf("pull image %s: the engine has ended the pull without the image, %w", s.Image, runtime.ErrTransient)
	}
	return err
}

// refusals are in errors of registries that another try does not change. The engine passes
// some of them on with status 500.
var refusals = []string{"manifest unknown", "not found", "denied", "unauthorized", "no basic auth credentials", "no matching manifest", "unsupported media type"}

// explainPull marks an error as transient unless another try would end in the same way.
func (a *Adapter) explainPull(ctx context.Context, s *settings, err error) error {
	what := "pull image " + s.Image
	if ctx.Err() != nil || isGone(err) {
		return a.explain(ctx, what, err)
	}
	text := strings.ToLower(err.Error())
	refused := errdefs.IsNotFound(err) || errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) || errdefs.IsInvalidArgument(err)
	switch {
	case strings.Contains(text, "no space left on device"):
		return fmt.Errorf("%s: the engine's disk is full: %w", what, err)
	case strings.Contains(text, "verification failed"):
		return fmt.Errorf("%s: the registry has sent other bytes: %w", what, err)
	case refused, slices.ContainsFunc(refusals, func(r string) bool { return strings.Contains(text, r) }):
		return fmt.Errorf("%s: the registry refuses it: %w: an image that needs a login, or is in no registry, is used if it is on the host already (docker pull, docker load)", what, err)
	}
	return fmt.Errorf("%s: the registry cannot be reached, %w: %w", what, runtime.ErrTransient, err)
}

// progress is that of a pull. Layers count the same, since their sizes are known late:
// half of each is its download, the other its extraction.
type progress struct {
	layers  map[string]float64 // from 0 to 1, by id
	percent float64
}

// add reports whether percent has grown. It never shrinks.
func (p *progress) add(m jsonstream.Message) bool {
	part := 0.0
	if m.Progress != nil && m.Progress.Total > 0 {
		part = min(1, float64(m.Progress.Current)/float64(m.Progress.Total)) / 2
	}
	switch m.Status {
	case "Pulling fs layer", "Waiting", "Downloading":
	case "Verifying Checksum", "Download complete":
		part = 0.5
	case "Extracting":
		part += 0.5
	case "Pull complete", "Already exists":
		part = 1
	default:
		return false // of the image, not of a layer
	}
	p.layers[m.ID] = max(p.layers[m.ID], part)
	sum := 0.0
	for _, part := range p.layers {
		sum += part
	}
	percent := 100 * sum / float64(len(p.layers))
	if percent <= p.percent {
		return false
	}
	p.percent = percent
	return true
}

// Discard removes the image if only this release needs it: no container and no other version
// of a component on this host has it, somebody's tag does not name it, and a registry has
// it.
func (a *Adapter) Discard(ctx context.Context, r *runtime.Release) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	img, err := a.image(ctx, s)
	if err != nil || img == nil || len(img.RepoTags) > 0 || len(img.RepoDigests) == 0 {
		return err
	}
	needed, err := a.neededByOthers(r, s)
	if err != nil || needed {
		return err
	}
	_, err = a.engine.ImageRemove(ctx, s.Image, client.ImageRemoveOptions{PruneChildren: true})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // a container has it
		return nil
	}
	return a.explain(ctx, "remove image "+s.Image, err)
}

// neededByOthers reports whether another version of the component, or of another one on this
// host, has the same image.
func (a *Adapter) neededByOthers(r *runtime.Release, s *settings) (bool, error) {
	components := filepath.Dir(r.Dir)
	entries, err := a.disk.ReadDir("component", components)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		data := filepath.Join(components, e.Name(), layout.DataDir)
		homes, err := a.disk.ReadDir("component", data)
		if err != nil {
			continue // no component
		}
		for _, h := range homes {
			if home := filepath.Join(data, h.Name()); home != r.Home && a.needs(home, s) {
				return true, nil
			}
		}
	}
	return false, nil
}

// needs reports whether the home is that of a version with the same image. A home that cannot
// be read is being unpacked or removed.
func (a *Adapter) needs(home string, s *settings) bool {
	text, err := a.disk.ReadFile("component", filepath.Join(home, manifest.FileName))
	if err != nil {
		return false
	}
	m, err := manifest.Parse(bytes.NewReader(text))
	if err != nil || m.Package.Component == nil {
		return false
	}
	image, _ := m.Package.Component.Settings["image"].(string)
	return strings.HasSuffix(image, "@"+s.Digest.String())
}

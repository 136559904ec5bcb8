package fleet

import "slices"

// Staged is the name of a version in Agent.StagedVersions.
func Staged(component, version string) string {
	if component == "" {
		return version
	}
	return component + " " + version
}

// HasStaged reports whether the host has staged a version of the agent, or of a component.
func (a *Agent) HasStaged(component, version string) bool {
	return slices.Contains(a.StagedVersions, Staged(component, version))
}

// CheckStage returns an error if the agent cannot stage versions, or has this one.
func (a *Agent) CheckStage(component, version string) error {
	switch {
	case a.StagedVersions == nil && a.Host().Maker == MakerElastic:
		return Errorf(Invalid, "agent %s is an Elastic Agent, which stages no versions: upgrade it instead", a.ID)
	case a.StagedVersions == nil:
		return Errorf(Invalid, "agent %s is of a version that stages no others: upgrade the agent first", a.ID)
	case a.HasStaged(component, version):
		return Errorf(Invalid, "agent %s has staged %s already", a.ID, Staged(component, version))
	}
	return nil
}

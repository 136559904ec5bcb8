package fleet

import "slices"

// HasStaged reports whether the host has staged a version of the agent, or of a component.
func (a *Agent) HasStaged(component, version string) bool {
	return slices.Contains(a.StagedVersions, What(component, version))
}

// CheckStage returns an error if the agent cannot stage versions, or has this one.
func (a *Agent) CheckStage(component, version string) error {
	switch cannot := firstRefusal(a.checkStays(), a.canStage()); {
	case cannot != nil:
		return cannot
	case a.HasStaged(component, version):
		return Errorf(Invalid, "agent %s has staged %s already", a.ID, What(component, version)).Because(CauseStaged)
	}
	return nil
}

// canStage returns an error if the agent cannot stage versions.
func (a *Agent) canStage() error {
	switch {
	case a.StagedVersions == nil && a.Host().Maker == MakerElastic:
		return Errorf(Invalid, "agent %s is an Elastic Agent, which cannot stage versions: upgrade it instead", a.ID).Because(CauseCannotStage)
	case a.StagedVersions == nil:
		return Errorf(Invalid, "agent %s is of a version that cannot stage others: upgrade the agent first", a.ID).Because(CauseCannotStage)
	}
	return nil
}

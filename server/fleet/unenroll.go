package fleet

// CheckUnenroll returns an error that says why the agent cannot be unenrolled, or nil.
// The text is shown to operators as it is.
func (a *Agent) CheckUnenroll() error {
	if !a.Active {
		return Errorf(Invalid, "agent %s is unenrolled already", a.ID).Because(CauseUnenrolled)
	}
	return nil
}

package fleet

// CheckRevoke returns an error that says why the agent's keys cannot be revoked, or nil. The text
// is shown to operators as it is.
func (a *Agent) CheckRevoke() error {
	if !a.Active {
		return Errorf(Invalid, "agent %s is unenrolled already", a.ID).Because(CauseUnenrolled)
	}
	return nil
}

// CheckUnenroll returns an error that says why the agent cannot be asked to leave, or nil. The
// text is shown to operators as it is.
func (a *Agent) CheckUnenroll() error {
	if err := a.CheckRevoke(); err != nil {
		return err
	}
	if d, gone := a.Left(); gone {
		return Errorf(Invalid, "agent %s %s, and cannot be asked: revoke its keys instead (revoke)", a.ID, d.Text).Because(d.Cause)
	}
	return nil
}

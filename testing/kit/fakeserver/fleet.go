package fakeserver

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// refuse is Refuse, and remembers it.
func (s *Server) refuse(w http.ResponseWriter, status int, code, message string) {
	s.mu.Lock()
	s.refused = append(s.refused, code+": "+message)
	s.mu.Unlock()
	Refuse(w, status, code, message)
}

// refusesUserAgent answers as Fleet Server 8.15 does if the User-Agent is not that of an
// Elastic Agent from 7.13 to 8.15.
func (s *Server) refusesUserAgent(w http.ResponseWriter, r *http.Request) bool {
	agent := strings.ToLower(r.UserAgent())
	version, ok := strings.CutPrefix(agent, "elastic agent ")
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "-")
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); !ok || n != 3 {
		s.refuse(w, http.StatusBadRequest, "InvalidUserAgent", "user-agent is invalid")
		return true
	}
	if order := cmp.Or(cmp.Compare(major, 7), cmp.Compare(minor, 13)); order < 0 || cmp.Or(cmp.Compare(major, 8), cmp.Compare(minor, 15)) > 0 {
		s.refuse(w, http.StatusBadRequest, "UnsupportedVersion", "version is not supported")
		return true
	}
	return false
}

// refusesCheckin answers as a Fleet Server if that does not accept the check-in.
func (s *Server) refusesCheckin(w http.ResponseWriter, r *http.Request, req agentapi.CheckinRequest) bool {
	if s.refusesUserAgent(w, r) {
		return true
	}
	if _, err := time.ParseDuration(req.PollTimeout); req.PollTimeout != "" && err != nil {
		s.refuse(w, http.StatusBadRequest, "BadRequest", "poll_timeout cannot be parsed as duration")
		return true
	}
	if req.Status == "" || req.Message == "" {
		s.refuse(w, http.StatusBadRequest, "BadRequest", "status and message are required")
		return true
	}
	bad := ""
	if u := req.UpgradeDetails; u != nil {
		switch {
		case u.ActionID == "":
			bad = "upgrade_details no action for id"
		case !u.State.Known():
			bad = "unknown state"
		case u.State == agentapi.UpgradeScheduled && u.Metadata.ScheduledAt == nil:
			bad = "metadata contains empty scheduled_at attribute"
		case u.State == agentapi.UpgradeFailed && u.Metadata.ErrorMsg == "":
			bad = "metadata contains empty error_msg attribute"
		}
	}
	if bad != "" {
		s.refuse(w, http.StatusInternalServerError, "BadRequest", bad)
	}
	return bad != ""
}

// refusesAcks answers as a Fleet Server if that does not accept the results.
func (s *Server) refusesAcks(w http.ResponseWriter, req agentapi.AckRequest) bool {
	for _, e := range req.Events {
		if e.Type != agentapi.AckType || e.Subtype != agentapi.AckSubtype || e.AgentID == "" || e.ActionID == "" || e.Message == "" || e.Timestamp.IsZero() {
			s.refuse(w, http.StatusBadRequest, "BadRequest", fmt.Sprintf("event of %q lacks a field", e.ActionID))
			return true
		}
	}
	return false
}

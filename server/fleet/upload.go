package fleet

import (
	"slices"
	"time"
)

// UploadStatus is the state of a file that an agent sends, in Fleet's terms.
type UploadStatus string

const (
	UploadAwaiting UploadStatus = "AWAITING_UPLOAD" // begun, and not complete
	UploadReady    UploadStatus = "READY"
	UploadError    UploadStatus = "UPLOAD_ERROR" // the chunks are not the file that was announced
	UploadDeleted  UploadStatus = "DELETED"      // an operator has deleted it
)

// Upload is a file that an agent sends in chunks. Its bytes are kept apart from it.
type Upload struct {
	ID       string `json:"upload_id"`
	ActionID string `json:"action_id"`
	AgentID  string `json:"agent_id"`
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	Size     int64  `json:"size"`
	// Requested reports whether an operator has asked for it.
	Requested bool         `json:"requested,omitempty"`
	Status    UploadStatus `json:"status"`
	Chunks    []Chunk      `json:"chunks"`
	StartedAt time.Time    `json:"upload_start"`
	Revision  int64        `json:"-"`
}

// Chunk is one part of an upload.
type Chunk struct {
	SHA256 string `json:"sha2"` // empty: it has not arrived
	Size   int64  `json:"size"`
	// Key is the name under which the bytes are kept.
	Key string `json:"key,omitempty"`
}

// Clone returns a copy that shares nothing with u.
func (u Upload) Clone() Upload {
	u.Chunks = slices.Clone(u.Chunks)
	return u
}

// Stored returns how many bytes of the file have arrived and are kept.
func (u *Upload) Stored() int64 {
	size := int64(0)
	for _, c := range u.Chunks {
		if c.Key != "" {
			size += c.Size
		}
	}
	return size
}

// DiagnosticsRequest records in an agent's document that diagnostics were requested of it.
type DiagnosticsRequest struct {
	ActionID string    `json:"action_id"`
	At       time.Time `json:"at"`
	Until    time.Time `json:"until"`
	By       string    `json:"by,omitempty"`
}

// MaxDiagnostics bounds the requests for diagnostics that an agent's document keeps, and the
// files that are kept for it: a comparison needs a few, and each may have 100 MiB.
const MaxDiagnostics = 5

// DiagnosticsExpiration is how long a request for diagnostics waits for the agent, as in
// Kibana.
const DiagnosticsExpiration = 3 * time.Hour

// RequestDiagnostics records a request, and forgets the oldest beyond MaxDiagnostics.
func (a *Agent) RequestDiagnostics(r DiagnosticsRequest) {
	a.Diagnostics = append(slices.Clone(a.Diagnostics), r)
	a.Diagnostics = a.Diagnostics[max(0, len(a.Diagnostics)-MaxDiagnostics):]
}

// DiagnosticsRequested reports whether the agent was asked for diagnostics by the action.
func (a *Agent) DiagnosticsRequested(actionID string) bool {
	return slices.ContainsFunc(a.Diagnostics, func(r DiagnosticsRequest) bool { return r.ActionID == actionID })
}

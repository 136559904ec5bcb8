package fleet

import "time"

// TrustFile is one document of the publishers' signed metadata: either content stored
// under its digest, or the index of the digests in effect.
type TrustFile struct {
	ID       string    `json:"id"`
	Data     []byte    `json:"data"`
	AddedAt  time.Time `json:"added_at"`
	Revision int64     `json:"-"`
}

// Event types of signed metadata. Append only.
const (
	EventTrustPublished = "trust.published" // subject: a file such as 3.targets.json
	EventTrustProblem   = "trust.problem"   // the server cannot sign; data: the reason
	EventTrustRestored  = "trust.restored"  // it can again
)

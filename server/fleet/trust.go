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

package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Headers of a delivery, as in the Standard Webhooks specification 1.0.0
// (https://www.standardwebhooks.com), whose libraries verify them.
const (
	// HeaderID is the same each time a notification is sent again: a receiver that stores
	// it handles each once.
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp" // of this try, in Unix seconds
	HeaderSignature = "Webhook-Signature" // v1,<base64>; see sign

	// HeaderEvent is the event's type, so that a receiver can route a body unread.
	HeaderEvent = "Muster-Event"
)

// secretPrefix marks a secret whose remainder is the key in base64.
const secretPrefix = "whsec_"

// The lengths of a key in bytes, as the specification has them.
const (
	minKey = 24
	maxKey = 64
)

// setHeaders sets the headers with which the receiver verifies a delivery.
func setHeaders(h http.Header, secret, typ, id string, body []byte, at time.Time) {
	t := strconv.FormatInt(at.Unix(), 10)
	h.Set(HeaderEvent, typ)
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, t)
	h.Set(HeaderSignature, "v1,"+base64.StdEncoding.EncodeToString(sum(key(secret), id+"."+t+".", body)))
}

// sum is the HMAC-SHA256 of a body and what is signed before it. The time is signed, so
// that an old delivery cannot be replayed.
func sum(key []byte, before string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(before))
	h.Write(body)
	return h.Sum(nil)
}

// key returns the key of a secret: the bytes that follow the prefix in base64, else the
// secret itself, which an operator may have chosen.
func key(secret string) []byte {
	if text, ok := strings.CutPrefix(secret, secretPrefix); ok {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil {
			return key
		}
	}
	return []byte(secret)
}

func newSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// checkSecret checks a secret that an operator chose.
func checkSecret(secret string) error {
	const field, otherwise = "body.secret", "omit it to have one generated"
	text, standard := strings.CutPrefix(secret, secretPrefix)
	if !standard {
		if len(secret) < minSecret {
			return fleet.FieldError(field, "has %d characters, want at least %d: %s", len(secret), minSecret, otherwise)
		}
		return nil
	}
	switch key, err := base64.StdEncoding.DecodeString(text); {
	case err != nil:
		return fleet.FieldError(field, "begins with %s but does not go on in base64: %s", secretPrefix, otherwise)
	case len(key) < minKey || len(key) > maxKey:
		return fleet.FieldError(field, "is a key of %d bytes, want %d to %d: %s", len(key), minKey, maxKey, otherwise)
	}
	return nil
}

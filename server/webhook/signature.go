package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Headers of a delivery.
const (
	// HeaderEvent is the event's type, so that a receiver can route a body unread.
	HeaderEvent = "Muster-Event"
	// HeaderDelivery is the same each time a notification is sent again: a
	// receiver that stores it handles each once.
	HeaderDelivery = "Muster-Delivery"
	// HeaderSignature is t=<Unix seconds>,v1=<hex>; see Sign.
	HeaderSignature = "Muster-Signature"
)

// Tolerance is how old a signature may be for Verify: longer than a delivery takes,
// too short for a replay.
const Tolerance = 5 * time.Minute

// Sign returns the signature header of a body: v1 is the HMAC-SHA256, under the
// webhook's secret, of the Unix seconds, a dot, and the body as it is sent. The
// time is signed too, so that an old delivery cannot be replayed.
func Sign(secret string, body []byte, at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac(secret, t, body))
}

func mac(secret, t string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(t + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Verify checks the signature of a received body. It ignores unknown parts of the header,
// so that a v2 can be added beside v1.
func Verify(secret, header string, body []byte, now time.Time) error {
	var t, v1 string
	for part := range strings.SplitSeq(header, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			t = value
		case "v1":
			v1 = value
		}
	}
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil || v1 == "" {
		return fmt.Errorf("the header %s is %q, want t=<Unix seconds>,v1=<hex>", HeaderSignature, header)
	}
	sum, err := hex.DecodeString(v1)
	if err != nil || !hmac.Equal(sum, mac(secret, t, body)) {
		return errors.New("the signature does not fit the body: another secret, or the body was changed on its way")
	}
	if age := now.Sub(time.Unix(seconds, 0)).Abs(); age > Tolerance {
		return fmt.Errorf("the signature is %v old, more than %v: an old delivery, or a clock that is wrong", age.Round(time.Second), Tolerance)
	}
	return nil
}

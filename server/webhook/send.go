package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// PostTimeout bounds one delivery, including the answer. A receiver that needs longer
// should answer first and work later.
const PostTimeout = 10 * time.Second

// answerMax is how much of a receiver's answer is read: enough for its reason.
const answerMax = 512

// Backoff is how long to wait before each retry. By the second a restarted receiver is
// back, by the fourth its restarted host; the last gives an operator some minutes. Then
// the later notifications should be delivered.
var Backoff = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// failure is why a delivery failed.
type failure struct {
	text string
	// again is whether a retry may succeed.
	again bool
	// after is the Retry-After of the receiver.
	after time.Duration
}

// post sends one body once.
func (s *Service) post(ctx context.Context, w fleet.Webhook, typ, delivery string, body []byte) *failure {
	ctx, cancel := context.WithTimeout(ctx, PostTimeout)
	defer cancel()
	now := s.Now.UTC()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return &failure{text: "its address is not one: " + reason(err)}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "muster")
	req.Header.Set(HeaderEvent, typ)
	req.Header.Set(HeaderDelivery, delivery)
	req.Header.Set(HeaderSignature, Sign(w.Secret, body, now))
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if s.Client != nil {
		client.Transport = s.Client.Transport
	}
	resp, err := client.Do(req)
	if err != nil {
		return &failure{text: reason(err), again: true}
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, answerMax)) // the status decides
	if resp.StatusCode/100 == 2 {
		return nil
	}
	f := &failure{text: fmt.Sprintf("the receiver answered %s", resp.Status), after: retryAfter(resp.Header.Get("Retry-After"), now)}
	if text := strings.TrimSpace(strings.ToValidUTF8(string(answer), "")); text != "" {
		f.text += ": " + text
	}
	switch code := resp.StatusCode; {
	case code/100 == 3:
		f.text += " (redirects are not followed: give the address itself)"
	case code/100 == 5, code == http.StatusRequestTimeout, code == http.StatusTooManyRequests:
		f.again = true
	}
	return f
}

// reason returns the text of an error without the address, which may contain a token.
func reason(err error) string {
	var ue *url.Error
	if errors.As(err, &ue) {
		if ue.Timeout() {
			return fmt.Sprintf("no answer within %v", PostTimeout)
		}
		err = ue.Err
	}
	return err.Error()
}

// retryAfter parses a Retry-After header: seconds or a date. It returns 0 for other text.
func retryAfter(text string, now time.Time) time.Duration {
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// pause returns how long to wait after the given number of failed tries; ok is false if
// that was the last. A receiver may request more, up to the longest step.
func (f *failure) pause(tries int) (_ time.Duration, ok bool) {
	if !f.again || tries > len(Backoff) {
		return 0, false
	}
	return max(Backoff[tries-1], min(f.after, Backoff[len(Backoff)-1])), true
}

package download

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/packaging/disk"
)

// part is a download that may have begun in an earlier process.
type part struct {
	fetcher         *Fetcher
	url             string
	path, statePath string
	report          func(Progress)

	file  disk.File
	have  int64
	state partState
}

// partState lies beside the part: which file it is the beginning of. Without it,
// or when it does not fit, the download begins anew.
type partState struct {
	URL  string `json:"url"`
	ETag string `json:"etag"`
}

func (p *part) open() error {
	file, err := p.fetcher.Disk.OpenFile(op, p.path, openPart, 0o600)
	if err != nil {
		return err
	}
	p.file = file
	if p.have, err = file.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	if data, err := p.fetcher.Disk.ReadFile(op, p.statePath); err == nil {
		// Damaged is as good as absent.
		_ = json.Unmarshal(data, &p.state)
	}
	if p.have > 0 && (p.state.URL != p.url || p.state.ETag == "") {
		return p.restart()
	}
	return nil
}

func (p *part) restart() error {
	p.have, p.state = 0, partState{}
	if err := p.file.Truncate(0); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	_, err := p.file.Seek(0, io.SeekStart)
	return err
}

func (p *part) close() {
	if p.file != nil {
		_ = p.file.Close() // after commit it is closed already; else the part is worth what was synced
		p.file = nil
	}
}

// attempt asks for what is missing and appends what comes.
func (p *part) attempt(ctx context.Context) (progressed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(StallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	before := p.have
	err = p.request(ctx, func() { stall.Reset(StallTimeout) })
	if errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	}
	return p.have > before, err
}

var errStalled = fmt.Errorf("nothing arrived for %s", StallTimeout)

func (p *part) request(ctx context.Context, alive func()) error {
	header := http.Header{}
	if p.have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", p.have))
		// A package published anew under the same name is another file.
		header.Set("If-Range", p.state.ETag)
	}
	resp, err := p.fetcher.get(ctx, p.url, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusPartialContent && rangeStart(resp) != p.have:
		if resp.StatusCode == http.StatusPartialContent {
			if err := p.restart(); err != nil {
				return &permanentError{err}
			}
			return fmt.Errorf("%s answered another range than was asked for", p.url)
		}
		if err := p.begin(resp); err != nil {
			return &permanentError{err}
		}
	case resp.StatusCode == http.StatusPartialContent:
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		if wholeSize416(resp) == p.have {
			return nil // the part is the whole file: only the commit was missing
		}
		if err := p.restart(); err != nil {
			return &permanentError{err}
		}
		return errors.New("the file at the source has changed")
	default:
		return answerError(resp, p.url)
	}
	size := wholeSize(resp)
	if err := p.checkSpace(size); err != nil {
		return err
	}
	return p.copy(ctx, resp.Body, size, alive)
}

// wholeSize416 reads "bytes */1234".
func wholeSize416(resp *http.Response) int64 {
	var n int64
	if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes */%d", &n); err != nil {
		return -1
	}
	return n
}

// begin starts a file from its first byte and notes which one it is.
func (p *part) begin(resp *http.Response) error {
	if err := p.restart(); err != nil {
		return err
	}
	// A weak tag does not promise equal bytes.
	if tag := resp.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		p.state = partState{URL: p.url, ETag: tag}
	}
	data, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	return disk.WriteFile(p.fetcher.Disk, op, p.statePath, data, 0o600)
}

func (p *part) checkSpace(size int64) error {
	if size < 0 {
		return nil
	}
	if size > MaxSize {
		return permanent("%s has %d bytes, the limit is %d", p.url, size, int64(MaxSize))
	}
	dir := filepath.Dir(p.path)
	free, err := p.fetcher.Disk.Free(op, dir)
	if err != nil {
		return &permanentError{err}
	}
	if need := size - p.have + SpaceMargin; free < need {
		return permanent("not enough disk space in %s: the download needs %d bytes, %d are free; free some and upgrade again", dir, need, free)
	}
	return nil
}

func (p *part) copy(ctx context.Context, body io.Reader, size int64, alive func()) error {
	buf := make([]byte, bufferSize)
	meter := newMeter(p.have, size, p.report)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			alive()
			if p.have+int64(n) > MaxSize {
				return permanent("%s has more than %d bytes", p.url, int64(MaxSize))
			}
			if _, werr := p.file.Write(buf[:n]); werr != nil {
				return &permanentError{fmt.Errorf("%s: %w", p.path, werr)}
			}
			p.have += int64(n)
			meter.add(int64(n), time.Now())
			if err := p.throttle(ctx, n); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && (size < 0 || p.have == size):
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the connection ended after %d of %d bytes", p.have, size)
		case err != nil:
			return err
		}
	}
}

// throttle sleeps for as long as n bytes may take.
func (p *part) throttle(ctx context.Context, n int) error {
	limit := p.fetcher.RateLimit
	if limit <= 0 {
		return nil
	}
	return backoff.Sleep(ctx, time.Duration(int64(n)*int64(time.Second)/limit))
}

// commit makes the file durable under its name.
func (p *part) commit(final string) error {
	d := p.fetcher.Disk
	if err := p.file.Sync(); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	err := p.file.Close()
	p.file = nil
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	if err := d.Rename(op, p.path, final); err != nil {
		return err
	}
	if err := d.Remove(op, p.statePath); err != nil {
		return err
	}
	return d.SyncDir(op, filepath.Dir(final))
}

// meter turns bytes into a report a second.
type meter struct {
	have, size  int64
	since       int64 // bytes since the last report
	last        time.Time
	report      func(Progress)
	everyReport time.Duration
}

func newMeter(have, size int64, report func(Progress)) *meter {
	m := &meter{have: have, size: size, last: time.Now(), report: report, everyReport: ReportEvery}
	report(Progress{Percent: m.percent()})
	return m
}

func (m *meter) add(n int64, now time.Time) {
	m.have += n
	m.since += n
	elapsed := now.Sub(m.last)
	if elapsed < m.everyReport {
		return
	}
	m.report(Progress{Percent: m.percent(), BytesPerSecond: float64(m.since) / elapsed.Seconds()})
	m.since, m.last = 0, now
}

func (m *meter) percent() float64 {
	if m.size <= 0 {
		return 0
	}
	return min(100, 100*float64(m.have)/float64(m.size))
}

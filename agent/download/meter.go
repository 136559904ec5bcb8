package download

import (
	"sync"
	"time"
)

// Progress is the progress of a download.
type Progress struct {
	Percent        float64 // 0 to 100
	BytesPerSecond float64 // mean of the last RateWindow; 0 if nothing arrives
	// Retry is why the last attempts failed, and RetryAt when the next begins. Both
	// are zero during an attempt.
	Retry   string
	RetryAt time.Time
}

// window computes the sliding mean of a rate. Call reset before use.
type window struct {
	total int64
	marks []mark // totals at earlier moments, oldest first; the first bounds the mean
}

type mark struct {
	at    time.Time
	total int64
}

// reset discards the past, so that a wait between two attempts does not lower the rate.
func (w *window) reset(now time.Time) { w.marks = []mark{{now, w.total}} }

// rate returns bytes per second. It must be called about every second.
func (w *window) rate(now time.Time) float64 {
	for len(w.marks) > 1 && now.Sub(w.marks[1].at) >= RateWindow {
		w.marks = w.marks[1:]
	}
	since := now.Sub(w.marks[0].at)
	received := w.total - w.marks[0].total
	w.marks = append(w.marks, mark{now, w.total})
	if since <= 0 {
		return 0
	}
	return float64(received) / since.Seconds()
}

func percent(have, size int64) float64 {
	return min(100, 100*float64(have)/float64(size))
}

// meter reports about every second, from its own goroutine, so that it also reports when
// nothing arrives.
type meter struct {
	report func(Progress)
	size   int64 // of the file
	// reporting is held while report runs, so that reports keep their order.
	reporting sync.Mutex

	mu      sync.Mutex
	window  window
	have    int64
	waiting bool

	quit chan struct{}
	done sync.WaitGroup
}

func startMeter(report func(Progress), size int64) *meter {
	m := &meter{report: report, size: size, quit: make(chan struct{})}
	m.window.reset(time.Now())
	m.done.Go(m.run)
	return m
}

func (m *meter) run() {
	t := time.NewTicker(ReportEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			m.tick()
		case <-m.quit:
			return
		}
	}
}

// stop stops the reports and waits for the last one.
func (m *meter) stop() {
	close(m.quit)
	m.done.Wait()
}

func (m *meter) tick() {
	m.reporting.Lock()
	defer m.reporting.Unlock()
	m.mu.Lock()
	p := Progress{Percent: percent(m.have, m.size), BytesPerSecond: m.window.rate(time.Now())}
	waiting := m.waiting // wait has reported already
	m.mu.Unlock()
	if !waiting {
		m.report(p)
	}
}

// first makes the report before the first attempt.
func (m *meter) first() {
	m.reporting.Lock()
	defer m.reporting.Unlock()
	m.report(Progress{Percent: m.percent()})
}

// wait reports that the next attempt begins at until.
func (m *meter) wait(why string, until time.Time) {
	m.reporting.Lock()
	defer m.reporting.Unlock()
	m.mu.Lock()
	m.waiting = true
	m.mu.Unlock()
	m.report(Progress{Percent: m.percent(), Retry: why, RetryAt: until})
}

// attempt marks the beginning of an attempt.
func (m *meter) attempt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = false
	m.window.reset(time.Now())
}

// received counts bytes that have arrived, needed or not.
func (m *meter) received(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.window.total += int64(n)
}

// set sets how much of the file there is.
func (m *meter) set(have int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.have = have
}

func (m *meter) percent() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return percent(m.have, m.size)
}

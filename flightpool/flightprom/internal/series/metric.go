package series

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A sample is a series at the time of a scrape.
type sample struct {
	desc    *prometheus.Desc
	labels  []*dto.LabelPair
	value   float64
	counter bool
}

// Desc implements prometheus.Metric.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *sample) Write(to *dto.Metric) error {
	to.Label = s.labels
	if s.counter {
		to.Counter = &dto.Counter{Value: &s.value}
	} else {
		to.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// A distribution is a histogram at the time of a scrape.
type distribution struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	bounds []float64
	within []uint64
	count  uint64
	sum    float64
}

// Desc implements prometheus.Metric.
func (d *distribution) Desc() *prometheus.Desc { return d.desc }

// Write implements prometheus.Metric.
func (d *distribution) Write(to *dto.Metric) error {
	buckets, all := make([]dto.Bucket, len(d.bounds)), make([]*dto.Bucket, len(d.bounds))
	for i := range buckets {
		buckets[i].UpperBound, buckets[i].CumulativeCount = &d.bounds[i], &d.within[i]
		all[i] = &buckets[i]
	}
	to.Label = d.labels
	to.Histogram = &dto.Histogram{SampleCount: &d.count, SampleSum: &d.sum, Bucket: all}
	return nil
}

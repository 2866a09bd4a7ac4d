// Package dsqlprom shows the pools of package dsql to Prometheus, under the names that
// dsqlotel has for OpenTelemetry: its package comment says what each is.
//
//	metrics := dsqlprom.NewCollector()
//	metrics.Add("orders", cluster)
//	prometheus.MustRegister(metrics)
//
// Each series has the label cluster. Of several pools on one Cluster, add the Cluster.
package dsqlprom

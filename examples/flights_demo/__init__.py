"""Writes real flights to a stream that scales, with a job that is killed: no flight is lost or duplicated.

``python -m examples.flights_demo`` runs everything. The parts are

* :mod:`~examples.flights_demo.data`: the flights, as events, and their checksum;
* :mod:`~examples.flights_demo.job`: the Spark structured-streaming job that writes them;
* :mod:`~examples.flights_demo.board`: the query that reads them while they arrive;
* :mod:`~examples.flights_demo.report`: the Spark batch job that reads them between two stream cuts;
* :mod:`~examples.flights_demo.picture`: draws what happened;
* :mod:`~examples.flights_demo.__main__`: starts, scales, kills, restarts and compares.
"""
